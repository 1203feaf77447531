"""What an image has to show: `shards/` and `by-key/` of the tree, less what cannot be in one."""

import io
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path

from touchfs.dataset import Dataset
from touchfs.tree.entry import Entry
from touchfs.tree.tree import Tree


def tree_of(dataset: Dataset) -> Tree:
    return Tree(dataset, range(1, len(dataset.listed) + 1))


def walk(tree: Tree, view: str) -> Iterator[tuple[bytes, Entry]]:
    """The paths and entries of a view with all that is below it."""
    waiting = [(b"/" + view.encode(), tree.resolve(view))]
    while waiting:
        path, entry = waiting.pop()
        yield path, entry
        if entry.is_directory:
            waiting += [(path + b"/" + name, tree.entry(e.inode)) for name, e, _ in tree.entries(entry.inode)]


def random_tar(path: Path, seed: int, count: int = 200) -> None:
    """A tar with names of all kinds: long, hidden, before and after dots, quoted, twice, in directories; and with links
    and directories.
    """
    dice = random.Random(seed)
    form = dice.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    with tarfile.open(path, "w", format=form) as tar:
        for number in range(count):
            key = f"{number:03d}"
            name = dice.choice(
                [
                    f"{key}.bin",
                    f"-{key}.txt",
                    f".{key}.txt",
                    f"..{key}.b.c",
                    f"deep/er{number % 7}/{key}.json",
                    f"{key}/x.ext",
                    f"+ %41/{key}.q",
                    f"a\n{key}.txt",
                    f"ü{key}.WAV",
                    "same.txt",
                    "n" * dice.randrange(1, 90) + f"{key}.ext",
                ]
            )
            member = tarfile.TarInfo(name)
            member.size = dice.choice([0, 1, 511, 512, 513, 4000, 20000])
            tar.addfile(member, io.BytesIO(dice.randbytes(member.size)))
            if dice.random() < 0.05:
                other = tarfile.TarInfo(f"{key}.{dice.choice(['link', 'directory'])}")
                other.type = tarfile.DIRTYPE if other.name.endswith("directory") else tarfile.LNKTYPE
                other.linkname = "" if other.isdir() else name
                tar.addfile(other)
