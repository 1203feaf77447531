"""Forms: how the stored bytes of a field become a file. `touchfs.form.table` lists them."""
