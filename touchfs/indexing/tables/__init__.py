"""The tables of a shard's catalog: the rows and names of all files, collected sample by sample or from columns."""
