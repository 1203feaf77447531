"""The tasks of the supervisor: its zygote, restarts, stuck workers, and the end of a mount."""
