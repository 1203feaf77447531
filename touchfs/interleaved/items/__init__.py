"""Items: the rows of interleaved samples, which are text, images and metadata."""
