"""Bulk work on a Dask cluster: an executor whose workers were asked first whether they see the same data."""
