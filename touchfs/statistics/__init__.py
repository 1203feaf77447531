"""Statistics of a dataset: exact ones of its catalogs, and those of the texts of random samples."""
