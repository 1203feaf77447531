"""Describe files that are neither shards nor lists of shards, by their first bytes, else by their name.

A user who names such a file learns what it is and what touchfs reads, not how it fails as a list of shards.
"""

from __future__ import annotations

import os

from touchfs.core.errors import map_os_errors
from touchfs.format import magic
from touchfs.media.extensions import is_recording
from touchfs.registry.containers import CONTAINERS, TAR, container_named
from touchfs.source.data import DATA

HEAD_SIZE = 8192

_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
# The first bytes of a format, what it is, and the suffix of names of files that touchfs reads, "" if it reads none.
_MAGICS = (
    *((start, what, kind.suffixes[0]) for kind in CONTAINERS for start, what in kind.magics),
    (b"FEA1", "a Feather file of version 1, which is not Arrow: write it again with pyarrow.feather", ""),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", ""),
    (b"Rar!", "a RAR archive", ""),
    (b"\x1f\x8b", "compressed by gzip", ".tar.gz or .jsonl.gz"),
    (b"BZh", "compressed by bzip2", ".tar.bz2 or .jsonl.bz2"),
    (b"\xfd7zXZ\0", "compressed by xz", ".tar.xz or .jsonl.xz"),
    (b"\x28\xb5\x2f\xfd", "compressed by Zstandard", ".tar.zst or .jsonl.zst"),
    (b"SQLite format 3\0", "an SQLite database", ""),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", ""),
    (b"\x93NUMPY", "a NumPy array", ""),
    (b"%PDF", "a PDF document", ""),
    (b"IDXPACK", "an index of many files: name these", ""),
)
_EXTENSIONS = {
    "7z": "a 7-Zip archive",
    "bin": "a .bin without its .idx",
    "csv": "a CSV file",
    "db": "a database",
    "h5": "an HDF5 file",
    "hdf5": "an HDF5 file",
    "html": "an HTML page",
    "json": "JSON; JSON lines are called .jsonl",
    "lance": "a Lance dataset",
    "md": "a Markdown text",
    "mdb": "an LMDB database",
    "npy": "a NumPy array",
    "npz": "a NumPy archive",
    "pickle": "a Python pickle",
    "pkl": "a Python pickle",
    "pt": "a PyTorch file",
    "py": "a Python program",
    "rar": "a RAR archive",
    "rst": "a text",
    "sqlite": "an SQLite database",
    "tfrecord": "a TFRecord file",
    "toml": "a TOML file",
    "tsv": "a TSV file",
    "xml": "an XML file",
    "yaml": "a YAML file",
    "yml": "a YAML file",
}
# Of pictures, many of which are loose files as recordings are.
_PICTURES = frozenset(("bmp", "gif", "jpeg", "jpg", "png", "tif", "tiff", "webp"))


def read_head(path: str) -> bytes:
    """The first `HEAD_SIZE` bytes of a file. Raises NotFoundError or SourceError."""
    with map_os_errors(path), DATA.stream(path) as file:
        return file.read(HEAD_SIZE)


def describe(name: str, head: bytes) -> str | None:
    """A description of a file by its name and first bytes, for an error message; None for text of an unknown format."""
    by_magic = _by_magic(head)
    if by_magic is not None:
        what, suffix = by_magic
        return f"{what}, but its name does not end in {suffix}" if suffix else what
    extension = magic.extension(head)
    if extension != "bin":
        return f"a single file of the kind .{extension}, not a shard: `touchfs pack` makes shards of such files"
    by_name = describe_name(name)
    if by_name is None and b"\0" in head:
        return "binary data in an unknown format"
    if by_name is None and head.lstrip().startswith(b"{"):
        return _EXTENSIONS["json"]
    return by_name


def misnamed(path: str) -> str:
    """What a file is that is named like a shard of another kind; "" if its name is right or its bytes do not tell.

    Raises NotFoundError or SourceError.
    """
    by_magic = _by_magic(read_head(path))
    if by_magic is None:
        return ""
    what, suffixes = by_magic
    kinds = [container_named(f"x{suffix}") for suffix in suffixes.split(" or ")]
    named = f", but its name does not end in {suffixes}: rename it" if suffixes else ""
    return "" if container_named(path) in kinds else f"{what}{named}"


def describe_bytes(head: bytes) -> str | None:
    """A description of data without a name by its first bytes, for an error message; None for text of any kind."""
    by_magic = _by_magic(head)
    if by_magic is not None:
        return by_magic[0]
    extension = magic.extension(head)
    if extension != "bin":
        return f"a file of the kind .{extension}"
    return "binary data in an unknown format" if b"\0" in head else None


def _by_magic(head: bytes) -> tuple[str, str] | None:
    """The format of a file with these first bytes, and the suffix that names of such files have."""
    if head[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC):
        return "a tar", TAR.suffixes[0]
    return next(((what, suffix) for start, what, suffix in _MAGICS if head.startswith(start)), None)


def describe_name(name: str) -> str | None:
    """A description of a file by the extension of its name, or None."""
    return _EXTENSIONS.get(os.path.splitext(name)[1][1:].lower())


def is_loose(name: str) -> bool:
    """True for the name of a single recording or picture, many of which make a shard."""
    extension = os.path.splitext(name)[1][1:].lower()
    return extension in _PICTURES or is_recording(extension)
