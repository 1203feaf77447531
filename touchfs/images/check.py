"""An image compared with its dataset: it is written again, and has to be the same bytes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, SourceError, map_os_errors
from touchfs.core.progress import Progress, unshown
from touchfs.format.erofs.layout import BLOCK
from touchfs.format.erofs.superblock import parse_image
from touchfs.images.image import write_image
from touchfs.images.owners import ImageOwners
from touchfs.images.plan import ImagePlan, PlannedShard
from touchfs.images.shard_rows import shard_rows
from touchfs.source.mapped import map_file

_PIECE = 1 << 20


def check_image(
    path: str, plan: ImagePlan, owners: ImageOwners, *, by_key: bool, progress: Progress = unshown
) -> Iterator[str]:
    """Yield a line for each problem: the image is not that of the dataset, or a file is followed by bytes that mmap
    would show.

    Raises NotFoundError or SourceError if the image cannot be read, and as `write_image`.
    """
    with map_os_errors(path), open(path, "rb") as image:
        if problem := _problem_of(image):
            yield f"{problem}: write it again with --force"
        else:
            with tempfile.TemporaryFile() as expected:
                write_image(plan, owners, expected, by_key=by_key)
                expected.seek(0)
                if not _are_equal(image, expected):
                    yield "is an image of other data, or of other options: write it again with --force"
    device_sizes = plan.device_sizes
    for done, shard in enumerate(plan.shards, 1):
        yield from _unpadded(plan, owners, shard, device_sizes)
        progress(done, len(plan.shards))


def _problem_of(image: BinaryIO) -> str:
    try:
        parse_image(map_file(image.fileno()))
    except FormatError as error:
        return error.message
    return ""


def _are_equal(image: BinaryIO, expected: BinaryIO) -> bool:
    while True:
        piece = image.read(_PIECE)
        if piece != expected.read(_PIECE):
            return False
        if not piece:
            return True


def _unpadded(
    plan: ImagePlan, owners: ImageOwners, planned: PlannedShard, device_sizes: NDArray[np.int64]
) -> Iterator[str]:
    """A line for each file after whose end its block has other bytes than zeros. Those are what mmap shows."""
    shard, catalog = plan.dataset.shards[planned.position], plan.dataset.catalog(planned.position)
    owner = owners.shards[planned.position].at(shard.mtime_ns)
    found = shard_rows(catalog, planned, device_sizes, owner, 0)
    files, rows = found.rows.files, found.numbers[found.rows.is_file]
    ends, table = files.blocks * BLOCK + files.sizes, catalog.tables["shards"]
    sources = {number: shard.source(name) for name, number in planned.devices.items()}
    are_members = np.isin(files.devices, [*planned.devices.values()])
    for place in np.flatnonzero(are_members & (files.sizes % BLOCK > 0)).tolist():
        end = int(ends[place])
        try:
            rest = sources[int(files.devices[place])].read(end, -end % BLOCK)
        except SourceError as error:
            yield str(error)
            return
        if any(rest):
            path = f"{shard.path_in('shards')}/{os.fsdecode(table.path(int(rows[place])))}"
            yield f"{path}: mmap would show bytes of the tar after its end; read() would not"
