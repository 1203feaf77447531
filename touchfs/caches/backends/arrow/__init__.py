"""Arrow files and tables behind `ArrowBackend`: record batches, and rows and cells of them."""
