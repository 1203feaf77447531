"""The layout of interleaved samples, without IO: locators of images, names of files, the JSON that lists items."""
