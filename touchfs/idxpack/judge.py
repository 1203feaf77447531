"""Whether each shard still matches an index pack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from touchfs.core.errors import FormatError
from touchfs.core.extent import drive
from touchfs.idxpack.layout import SegmentContent, scan_pack, scan_segment
from touchfs.peers.judge import IndexState, Verdict, judge_offsets
from touchfs.peers.lists import open_listed
from touchfs.source.data import DATA


def judge_pack(path: str, directory: str) -> Iterator[Verdict]:
    """A verdict on each segment of a pack, as `judge_list`. Raises FormatError if the pack as a whole is damaged."""
    file = DATA.open(path)
    pack = drive(scan_pack(file.size), file)
    for segment, (name, row) in enumerate(zip(pack.paths, pack.segments, strict=True)):
        content = SegmentContent(int(row["flags"]))
        try:
            numbers = drive(scan_segment(pack, segment), file)
        except FormatError as error:
            yield Verdict(path, IndexState.DAMAGED, f"{name or f'array {segment}'}: {error}")
            continue
        if content is SegmentContent.ARRAY:
            yield Verdict(path, IndexState.FITS, f"array {segment}: {len(numbers)} numbers, and their CRC is right")
            continue
        size = int(numbers[-1]) if len(numbers) else None
        shard = open_listed(path, name, size, directory)
        if isinstance(shard, Verdict):
            yield shard
        elif content is SegmentContent.PATHS:
            yield Verdict(path, IndexState.FITS, f"{name}: is there")
        else:
            found = judge_offsets(path, numbers, shard, shard.size)
            yield replace(found, message=f"{name}: {found.message}")
