"""The command line, one file per command. A command parses arguments, calls the library and prints the result."""
