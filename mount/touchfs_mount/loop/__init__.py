"""The event loop of a worker, and the threads for calls that may block."""
