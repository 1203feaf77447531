"""Content types of images, and the extensions of their files. Upper and lower case are the same.

The registries of `mimetypes` differ between machines, so the types that images have are listed here.
"""

from __future__ import annotations

# What readers take for an image, in the order in which they look for the file of a sample.
IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp", ".gif")

# The first extension of a type is the one that files get.
_EXTENSIONS = {
    "image/jpeg": ("jpg", "jpeg", "jpe", "jfif"),
    "image/png": ("png",),
    "image/tiff": ("tiff", "tif"),
    "image/webp": ("webp",),
    "image/gif": ("gif",),
    "image/bmp": ("bmp", "dib"),
    "image/avif": ("avif",),
    "image/heic": ("heic", "heif"),
    "image/jp2": ("jp2",),
    "image/jxl": ("jxl",),
    "image/svg+xml": ("svg", "svgz"),
    "image/vnd.microsoft.icon": ("ico",),
    "image/x-portable-pixmap": ("ppm",),
    "image/x-portable-graymap": ("pgm",),
    "image/x-portable-bitmap": ("pbm",),
    "application/json": ("json",),
    "application/pdf": ("pdf",),
    "text/plain": ("txt",),
}
_SYNONYMS = {"image/jpg": "image/jpeg", "image/tif": "image/tiff", "image/x-ms-bmp": "image/bmp"}
_TYPES = {extension: content_type for content_type, names in _EXTENSIONS.items() for extension in names}


def content_type_of(name: str) -> str | None:
    """Return the content type for a file's name or path; None if its extension is not known."""
    stem, dot, extension = name.rpartition("/")[2].rpartition(".")
    return _TYPES.get(extension.lower()) if dot and stem else None


def extension_of(content_type: str | None) -> str:
    """Return the extension, without a dot, for a content type with or without parameters; `bin` if it is not known."""
    essence = (content_type or "").partition(";")[0].strip().lower()
    return _EXTENSIONS.get(_SYNONYMS.get(essence, essence), ("bin",))[0]
