"""Arrow IPC files, as far as catalogs need them."""
