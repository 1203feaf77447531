"""The recordings of an open shard: which file of a sample is its recording, what it is, and pieces of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from touchfs.catalog.table import Table
from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, Extent
from touchfs.dataset.open_shard import OpenShard, StoredBytes, stored_at
from touchfs.form.base import Form
from touchfs.form.beside import Beside
from touchfs.form.lengths import info_of, known_info
from touchfs.form.plain import BYTES
from touchfs.form.recordings import Pcm, can_cut
from touchfs.media.duration import AudioInfo
from touchfs.media.extensions import preference
from touchfs.shard.sample import Field, StoredRecording

if TYPE_CHECKING:
    from touchfs.media.slices.media_info import MediaInfo


def recording_row(shard: OpenShard, ordinal: int) -> int | None:
    """The row of a sample's recording in the table `shards`, the one that its segments are cut from; None if it has
    none. A recording whose kind has a rate is preferred, then PCM, then the order of `recordings_among`.
    """
    table = shard.tables["shards"]
    rows = [row for row in table.files(ordinal) if may_be_recording(shard, table, row)]

    def place(row: int) -> tuple[bool, ...]:
        is_unmeasured, is_coded = not shard.kind_of(table, row).rate, not isinstance(shard.form(table, row), Pcm)
        return is_unmeasured, is_coded, *preference(table.extension(row))

    return min(rows, key=place, default=None)


def may_be_recording(shard: OpenShard, table: Table, row: int) -> bool:
    """True if the catalog has the rate and length of the file at a row, or it is of a coding that can be cut."""
    form = shard.form(table, row)
    if shard.kind_of(table, row).rate or isinstance(form, Pcm):
        return True
    return can_cut(form, table.extension(row))


def read_recording(shard: OpenShard, table: Table, row: int) -> StoredRecording:
    """The recording at a row. Blocks while its bytes are read to know what it is. Raises as `info_of`."""
    try:
        known = known_recording(shard, table, row)
        if known is not None:
            return known
        stored = _stored(shard, table, row)
        return _described(shard, table, row, stored, info_of(stored, shard.limits))
    except FormatError as error:
        error.at(shard.shard.path)
        raise


def known_recording(shard: OpenShard, table: Table, row: int) -> StoredRecording | None:
    """The recording at a row, if this process knows without reading what it is. Never waits."""
    if isinstance(shard.form(table, row), Pcm):
        return StoredRecording.of(shard.field(table, row))
    form, extent, detail = shard.resolved(stored_at(table, row))
    stored = form.known_stored(extent, detail, shard.limits)
    info = None if stored is None else known_info(stored)
    return None if stored is None or info is None else _described(shard, table, row, stored, info)


def piece_of_recording(shard: OpenShard, table: Table, row: int, piece: Field) -> Content:
    """The content of a piece of the recording at a row. Raises FormatError. May wait for the place of a cell."""
    if _is_cell(shard.form(table, row)):
        cell = _stored(shard, table, row)
        if piece.offset + piece.size > cell.size:
            raise FormatError("a recording in a cell is shorter than its header says", path=shard.shard.path)
        extent = Extent(cell.source, cell.offset + piece.offset, piece.size)
    else:
        extent = shard.extent(StoredBytes(table.kind[row] - 1, piece.offset, piece.size, piece.detail))
    return piece.form.content(extent, piece.detail, shard.limits)


def _described(shard: OpenShard, table: Table, row: int, stored: Extent, info: MediaInfo) -> StoredRecording:
    """A recording of this description. Its segments have the rate and length of the catalog, and so do slices.

    That of a cell is described as a range of the cell's bytes.
    """
    field, rate = shard.field(table, row), shard.kind_of(table, row).rate
    if _is_cell(field.form):
        field = replace(field, offset=0, size=stored.size, form=BYTES, detail=b"")
    recording = StoredRecording.measured(field, _audio(info))
    is_pcm = isinstance(recording.field.form, Pcm)
    return recording if is_pcm or not rate else replace(recording, rate=rate, length=table.frames[row])


def _stored(shard: OpenShard, table: Table, row: int) -> Extent:
    """The bytes of a recording that is stored as it is. May wait."""
    form, extent, detail = shard.resolved(stored_at(table, row))
    return form.stored(extent, detail, shard.limits)


def _audio(info: MediaInfo) -> AudioInfo:
    pcm = info.offset if info.is_plain_pcm else 0
    return AudioInfo(info.rate, info.channels, info.frames, info.default_format, pcm)


def _is_cell(form: Form) -> bool:
    """True for files of which only their form knows the place."""
    return form.is_stored and form is not BYTES and not isinstance(form, Beside)
