"""Foreign decoders in child processes, with limits on their memory and time."""
