"""Arrow IPC files: the mapped ones of catalogs, and where the cells of any others are."""
