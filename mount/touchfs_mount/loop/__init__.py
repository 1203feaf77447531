"""How a worker waits: its event loop, and the threads for what may block."""
