"""The processes of a mount: supervisor, zygote, workers, and their life."""
