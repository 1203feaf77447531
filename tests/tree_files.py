"""What a tree shows: its names, and the bytes of its files."""

import os
from collections.abc import Iterator

from touchfs.tree.tree import Tree


def names(tree: Tree, path: str) -> list[str]:
    """The names in a directory, as they are listed."""
    return [os.fsdecode(name) for name, _, _ in tree.entries(tree.resolve(path).inode)]


def read(tree: Tree, path: str) -> bytes:
    """The bytes of a file: as many as both ways to ask for its size say."""
    entry = tree.resolve(path)
    content = tree.content(entry.inode)
    data = bytes(content.read(0, content.size))
    assert len(data) == content.size == entry.size == tree.entry(entry.inode).size
    return data


def files_below(tree: Tree, path: str) -> dict[str, bytes]:
    """All files below a directory, by their path from there on."""
    return {below.removeprefix(f"{path}/"): read(tree, below) for below in _files(tree, path)}


def _files(tree: Tree, path: str) -> Iterator[str]:
    for name, entry, _ in tree.entries(tree.resolve(path).inode):
        below = f"{path}/{os.fsdecode(name)}"
        if entry.is_directory:
            yield from _files(tree, below)
        else:
            yield below
