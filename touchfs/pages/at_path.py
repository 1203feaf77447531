"""The page of what is at a path of a tree: a sample with its files and segments, a segment, or a file of any view."""

from __future__ import annotations

import os
from functools import partial
from itertools import islice

from touchfs.catalog.table import DIRECTORY, NO_SAMPLE, Table
from touchfs.core.errors import UsageError
from touchfs.dataset.open_shard import OpenShard
from touchfs.dataset.shown_segments import segments_of
from touchfs.explore.files import ContentOf, PictureSize, sample_page
from touchfs.explore.page import Page
from touchfs.media.extensions import is_video
from touchfs.pages.overview import ALL, Overview, SampleChoice, title_of
from touchfs.pages.thumbnails import frames_of
from touchfs.tree.tree import Entry, Tree
from touchfs.view.segments import rows_of_segments

_ITEMS = 1000
_CHOICE = "is a sample or a file: --where and --take choose samples of a dataset or a shard"
_DIRECTORY = "is a directory: name a sample or a file in it, as `touchfs ls` lists them"


def page_at(tree: Tree, entry: Entry, path: str, size: PictureSize, choice: SampleChoice = ALL) -> Page:
    """The page of an entry at a path; of a dataset or a shard, that of a choice of its samples.

    Raises UsageError for a directory that is not of one sample, and for a choice of what is no dataset.
    """
    limits, found = tree.dataset.limits, tree.stored(entry.inode)
    if (of_many := overview_at(tree, entry, path, choice)) is not None:
        overview, title = of_many
        return overview.page(title)
    if choice != ALL:
        raise UsageError(_CHOICE, path=path)
    if found is not None:
        view, shard, table, row = found
        ordinal = _sample_at(table, row)
        if ordinal is not None and (view == "shards" or table.kind[row] == DIRECTORY):
            name = "" if table.kind[row] == DIRECTORY else table.extension(row)
            return page_of_sample(shard, ordinal, size, name)
        if ordinal is not None:
            return _page_of_segment(shard, table, row, size)
    if (document := _document(tree, entry, path, size)) is not None:
        return document
    if entry.is_directory:
        raise UsageError(_DIRECTORY, path=path)
    files: dict[str, ContentOf] = {os.path.basename(path): partial(tree.content, entry.inode)}
    return sample_page(os.path.basename(path), os.path.dirname(path), files, size, limits=limits)


def _document(tree: Tree, entry: Entry, path: str, size: PictureSize) -> Page | None:
    """The page of an interleaved sample: its texts and images in their order; None for any other directory."""
    if not entry.is_directory or not path.startswith("interleaved/"):
        return None
    children = [*islice(tree.entries(entry.inode), _ITEMS)]
    if any(child.is_directory for _, child, _ in children):
        return None
    files: dict[str, ContentOf] = {os.fsdecode(name): partial(tree.content, child.inode) for name, child, _ in children}
    place, name = os.path.split(path)
    return sample_page(name, place, files, size, limits=tree.dataset.limits, in_order=True)


def overview_at(tree: Tree, entry: Entry, path: str, choice: SampleChoice = ALL) -> tuple[Overview, str] | None:
    """The overview of the dataset or of the shard at a path, and its title; None for what is in a shard."""
    if not path:
        return Overview(tree.dataset, choice=choice), title_of(tree.dataset)
    found = tree.stored(entry.inode)
    if found is None or found[3]:
        return None
    _, shard, _, _ = found
    return Overview(tree.dataset, [shard.position], choice=choice), shard.shard.name


def page_of_sample(shard: OpenShard, ordinal: int, size: PictureSize, first: str = "") -> Page:
    """The page of a sample of a shard, with the file of the extension `first` before all others."""
    table = shard.tables["shards"]
    rows = {table.extension(row): row for row in table.files(ordinal)}
    files: dict[str, ContentOf] = {name: partial(shard.content, table, row) for name, row in rows.items()}
    frames = {name: partial(frames_of, shard, table, row) for name, row in rows.items() if is_video(name)}
    place = f"{shard.shard.name}   {ordinal + 1:,} of {shard.shard.samples:,}"
    key = table.key(next(iter(rows.values()))) if rows else f"{ordinal:08d}"
    return sample_page(key, place, files, size, segments_of(shard, ordinal), first, shard.limits, frames=frames)


def _page_of_segment(shard: OpenShard, table: Table, row: int, size: PictureSize) -> Page:
    number = table.part[row]
    rows = rows_of_segments(table, table.ordinal[row])[number]
    files: dict[str, ContentOf] = {ending: partial(shard.content, table, each) for ending, each in rows.items()}
    place = f"{shard.shard.name}   segment {number:,}"
    return sample_page(f"{table.key(row)}/{number:04d}", place, files, size, limits=shard.limits)


def _sample_at(table: Table, row: int) -> int | None:
    """The ordinal of the sample of a file, or of all files in a directory; None if there is none such."""
    if table.kind[row] != DIRECTORY:
        return None if table.ordinal[row] == NO_SAMPLE else table.ordinal[row]
    children = table.children(row) if row else range(0)
    if not children:
        return None
    # Names are in order, and samples are not: all children are looked at, but a shard's own directory has no sample.
    first = table.ordinal[children[0]]
    alike = all(table.kind[child] != DIRECTORY and table.ordinal[child] == first for child in children)
    return first if alike and first != NO_SAMPLE else None
