"""Files of other stores by URL: read in ranges through fsspec, and kept in blocks on this machine."""
