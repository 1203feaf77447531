"""Arrow IPC files: the subset that catalogs use."""
