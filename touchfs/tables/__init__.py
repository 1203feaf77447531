"""Open tables: Arrow files and Lance datasets, each opened once by a process, and the rows and columns in them."""
