"""The command line: one file a command. A command parses, calls and prints; what it does is done elsewhere."""
