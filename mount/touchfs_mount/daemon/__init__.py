"""The processes of a mount: supervisor, zygote and workers; their logs and reloads."""
