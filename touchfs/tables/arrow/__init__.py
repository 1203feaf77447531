"""Open Arrow files: rows and columns of them, and cells in compressed buffers."""
