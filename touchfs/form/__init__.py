"""Forms: how the stored bytes of a field become a file. `touchfs.registry.forms` lists them."""
