"""`tree_reader.py SHARD KEPT`: reads segments of a shard through the tree, and writes what it finds to `KEPT`.

Of each sample it reads the first two and the last two `.wav`, and prints a line for each: path, the error or null, and
the seconds that it took. The last line has the texts of the shard's ERROR.txt, and the megabytes that the process had
at most.
"""

import json
import re
import sys
import time
from pathlib import Path

from touchfs.core.errors import TouchfsError
from touchfs.indexing import open_dataset
from touchfs.tree.tree import Tree


def main() -> None:
    source, kept = sys.argv[1], Path(sys.argv[2])
    dataset = open_dataset(source, in_memory=True)
    tree = Tree(dataset, range(1, len(dataset.shards) + 1))
    name = dataset.shards[0].name
    for key, directory, _ in tree.entries(tree.resolve(f"segments/{name}").inode):
        if key == b"ERROR.txt":
            continue
        found = [(name, entry) for name, entry, _ in tree.entries(directory.inode) if name.endswith(b".wav")]
        for file, entry in dict([*found[:2], *found[-2:]]).items():
            path, error = f"{key.decode()}/{file.decode()}", None
            begin = time.monotonic()
            try:
                content = tree.content(entry.inode)
                data = bytes(content.read(0, content.size))
                assert len(data) == content.size == tree.entry(entry.inode).size
                (kept / path.replace("/", "-")).write_bytes(data)
            except TouchfsError as failure:
                error = str(failure)
            print(json.dumps([path, error, time.monotonic() - begin]))
    print(json.dumps([report(tree, name), peak() // 1024]))


def peak() -> int:
    """The kilobytes that this process had at most. `ru_maxrss` begins with those of its parent."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def report(tree: Tree, shard: str) -> str:
    found = ""
    for view in ("shards", "segments"):
        for name, entry, _ in tree.entries(tree.resolve(f"{view}/{shard}").inode):
            if name == b"ERROR.txt":
                content = tree.content(entry.inode)
                found += bytes(content.read(0, content.size)).decode()
    return found


if __name__ == "__main__":
    main()
