"""Write an .idxpack: the offset indexes of many shards in one file, for Lhotse and NeMo.

The offsets are computed from the data; indexes beside it are ignored, because nothing shows that they are right. A pack
has one collection of all JSONL files and one of all tars. A reader finds a collection by its declaration, so shards may
be given as a pattern, as in its configurations, and the pattern is the declaration. Paths and declaration are stored as
given. All offsets are in memory until the pack is written, 8 bytes a sample.

Source: lhotse/index_pack.py, NeMo's scripts/dataloading/convert_indexes_to_idxpack.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial

import numpy as np

from touchfs.containers.tar.layout.grouping import Dialect
from touchfs.core import jobs
from touchfs.core.errors import UsageError
from touchfs.core.location import Location
from touchfs.core.task_paths import path_there
from touchfs.format.idx.offsets import Offsets
from touchfs.idxpack.build import CollectionSpec, build_pack
from touchfs.peers.write import identify, offset_blocks
from touchfs.registry.containers import TAR, single_named
from touchfs.registry.directory.members import find_members
from touchfs.source.data import DATA
from touchfs.source.upload import new_file

# The names in Lhotse and NeMo: role and kind
_LINES = ("manifest", "jsonl")
_TARS = {Dialect.LHOTSE: ("tar", "tar"), Dialect.NEMO: ("tar", "nemo_tar"), Dialect.WDS_V2: ("wds_tar", "wds_tar_v2")}


def write_pack(
    sources: Sequence[str],
    output: str,
    dialect: Dialect = Dialect.NEMO,
    *,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Write a pack of the indexes of all files in `sources`, replacing any pack at `output`. Returns the samples.

    `progress` is called with the bytes that are indexed and their total. Raises UsageError for a dialect without
    packs, and FormatError for damaged data.
    """
    if dialect not in _TARS:
        raise UsageError(f"an index pack of the dialect {dialect.value} has no readers")
    specs = []
    for is_tar, (role, kind) in ((False, _LINES), (True, _TARS[dialect])):
        declared = [source for source in sources if (single_named(source) is TAR) is is_tar]
        if declared:
            paths = [path for source in declared for path in find_members(Location.of(source)) or [source]]
            specs.append(CollectionSpec(role, kind, declared[0] if len(declared) == 1 else declared, paths))
    paths = list(dict.fromkeys(path for spec in specs for path in spec.paths))
    sized = [(path_there(executor, path), identify(path).size) for path in paths]
    found = jobs.run_sized(partial(_offsets, dialect=dialect), sized, executor, progress=progress)
    offsets = dict(zip(paths, found, strict=True))
    with new_file(output) as file:
        file.writelines(build_pack(specs, offsets))
    return sum(len(offsets[path]) - 1 for spec in specs for path in spec.paths)


def _offsets(path: str, dialect: Dialect) -> Offsets:
    source = DATA.open(path, identify(path))
    found = offset_blocks(source, source.size, dialect if single_named(path) is TAR else None)
    offsets = np.concatenate(list(found))
    source.open()  # raises ChangedError if the file changed meanwhile
    return offsets
