"""The control directory `.touchfs/`."""
