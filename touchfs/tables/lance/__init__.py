"""Open Lance datasets: versions of them, rows, blobs and errors, in this process or in one of its own."""
