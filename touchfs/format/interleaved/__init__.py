"""Interleaved samples: locators of their images, names of their files, and the JSON that lists their items."""
