"""The directories of a view that is being made, and the order of its rows: by level, and in a directory by name."""

from __future__ import annotations

from array import array
from itertools import repeat


class DirectoryTree:
    """The directory tree of a view. Nodes are numbers: first the files in the order of `add`, then directories."""

    def __init__(self, files: int) -> None:
        # The names of the nodes: those of directories follow when they are laid out.
        self.names: list[bytes] = []
        self._files = files
        self._directory_names = [b""]
        self._children: dict[bytes, array[int]] = {b"": array("I")}

    def add(self, directory: bytes, name: bytes) -> None:
        """Add a file. `directory` is a path relative to the shard."""
        children = self._children.get(directory)
        if children is None:
            children = self._made(directory)
        children.append(len(self.names))
        self.names.append(name)

    def _made(self, directory: bytes) -> array[int]:
        """The children of a new directory, which is made below those above it."""
        missing = []
        while (children := self._children.get(directory)) is None:
            missing.append(directory)
            directory = directory.rpartition(b"/")[0]
        for path in reversed(missing):
            children.append(self._files + len(self._directory_names))
            children = self._children[path] = array("I")
            self._directory_names.append(path.rpartition(b"/")[2])
        return children

    def lay_out(self) -> tuple[array[int], array[int], list[tuple[int, int]]]:
        """Return each row's node and parent row; for each directory its first child's row and number of children."""
        self.names += self._directory_names
        lists = list(self._children.values())
        spans = [(0, 0)] * len(lists)
        nodes, parents = array("I", [self._files]), array("I", [0])
        for row, node in enumerate(nodes):  # `nodes` grows during the loop, level by level
            if node >= self._files:
                children = sorted(lists[node - self._files], key=self.names.__getitem__)
                spans[node - self._files] = len(nodes), len(children)
                nodes.extend(children)
                parents.extend(repeat(row, len(children)))
        return nodes, parents, spans
