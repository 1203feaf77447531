"""Where bytes come from, and how files are put on disk so that nobody ever sees half of one."""
