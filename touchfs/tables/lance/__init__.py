"""Open Lance datasets: versions of them, rows, blobs, errors and forms, in this process or in one of its own."""
