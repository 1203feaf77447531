"""The tree of a dataset: lookups, listings, attributes and contents, all by inode number.

    /                         row 1 of view 0
    /shards/ /segments/       a view: its shards, in each the rows of its table (`catalog_view`)
    /shards/train/            the shards of a split, if there are several splits
    /segments/…/0000/         the frames of a segment of a video (`segment_frames`)
    /by-key/                  symbolic links to all samples that have a key (`by_key`)
    /merged/                  segments merged by a plan that the path names (`merged`)
    /slices/                  spans of recordings that the path names, and whole recordings as WAV (`slices`)
    /columns/                 whole columns of tables (`table_views`)
    /by-label/                links to rows of tables by their class label (`by_label`)
    /tokens/                  windows of tokens by a plan that the path names (`tokens`)
    /manifests/               lists of the dataset for other tools (`manifests`)
    /frames/ /windows/        frames of videos (`frames`), and windows of them by a plan that the path names (`windows`)
    /interleaved/             samples of texts and images, with a file for each (`interleaved`)

A view for which something of all shards must be known is made when all are indexed: until then it is listed if the
dataset may have it, and to look into it waits for that. `segments/` and `merged/` are listed until it is known that
there are neither recordings nor segments.

A tree keeps no data per inode. It is safe for any number of threads; one that must not block uses `Tree.nonblocking`.
A subtree that only some datasets have is imported when a tree is made that has it: to import all of them takes 30 ms.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

from touchfs.catalog.keys import Keys
from touchfs.catalog.table import COLUMNS, Table
from touchfs.core.errors import ChangedError, NotFoundError, UsageError
from touchfs.core.extent import Content
from touchfs.core.names import NAME_MAX
from touchfs.dataset import Dataset
from touchfs.tree.catalog_view import CatalogView
from touchfs.tree.entry import Entry, ListedFiles
from touchfs.tree.inode import ROOT, VIEW_SHIFT, VIEWS_END, pack, unpack
from touchfs.tree.links.by_key import ByKey
from touchfs.tree.manifests import Manifests
from touchfs.tree.open_shards import NonblockingShards, OpenShards, TreeShard, WouldBlockError
from touchfs.tree.plan_views.merged import FIRST_PLAN, Merged
from touchfs.tree.plan_views.plans import LocalPlans, Plans
from touchfs.tree.slice_numbers import TOKENS_RECORD, WINDOWS_RECORD, LocalNumbers, Numbers, PlannedInodes
from touchfs.tree.subtree import EmptyView, Subtree
from touchfs.tree.videos import frame_numbers
from touchfs.tree.videos.segment_frames import SegmentFrames
from touchfs.view.plan import parse_plan

__all__ = ["Entry", "Tree"]

# View numbers are a part of inode numbers, so they must never change.
_NUMBERS = {
    "shards": 1,
    "segments": 2,
    "by-key": 3,
    "merged": 4,
    "slices": 5,
    "manifests": 6,
    "slices/all": 7,
    "columns": 8,
    "by-label": 9,
    "frames": 10,
    "windows": 11,
    "interleaved": 13,
    "tokens": 14,
}


class Tree:
    """The tree of `dataset`. `shard_ids` are the ids of its shards, in the same order: from 1 on, all different.

    `plans` and `numbers` are the registries of plans under `merged/`, and of what is looked up in `slices/`,
    `windows/`, `tokens/` and below segments, needed if several processes serve one tree. Without `list_by_key` a
    listing of `by-key/` is empty, but lookups still find every link. The lists in `manifests/` name files by paths that
    begin with the directory `prefix`; by default they are relative to the root. With `verify`, files in `shards/` are
    compared with their checksums (`checked_view`).
    """

    def __init__(
        self,
        dataset: Dataset,
        shard_ids: Sequence[int],
        plans: Plans | None = None,
        numbers: Numbers | None = None,
        *,
        list_by_key: bool = True,
        prefix: str = "",
        verify: bool = False,
    ) -> None:
        self.dataset = dataset
        self._shards = shards = OpenShards(dataset, shard_ids)
        self._shard_ids = shard_ids
        self._numbers = numbers = numbers or LocalNumbers()
        self._list_by_key = list_by_key
        self._prefix = prefix
        segment_frames = SegmentFrames(shards, numbers, _NUMBERS["segments"])
        merged = Merged(shards, plans or LocalPlans(), _NUMBERS["merged"])
        files = _NUMBERS["shards"]
        shown: dict[str, Subtree] = {
            "shards": CatalogView(shards, "shards", files),
            "segments": CatalogView(shards, "segments", _NUMBERS["segments"], segment_frames),
            "merged": merged,
        }
        if any(shard.may_have_tokens for shard in dataset.listed):
            from touchfs.tree.plan_views.tokens import TokensView

            number = _NUMBERS["tokens"]
            shown["tokens"] = TokensView(shards, PlannedInodes(numbers, number, TOKENS_RECORD), number)
        if verify:
            from touchfs.tree.checked_view import CheckedView, Checks

            shown["shards"] = CheckedView(shards, files, Checks())
        self._root = Entry(ROOT, stat.S_IFDIR, 0, shards.mtime_ns)
        self._growing = pack(_NUMBERS["merged"], 0, 0)
        # By view; a subtree may have several.
        first: dict[int, Subtree] = {_NUMBERS[name]: subtree for name, subtree in shown.items()}
        first |= dict.fromkeys(frame_numbers.VIEWS, segment_frames)
        first |= dict.fromkeys(range(FIRST_PLAN, VIEWS_END), merged)
        self._first = first
        self._may_wait = True
        self._has_all = dataset.is_indexed
        self._subtrees = first | self._views_of_all() if self._has_all else first
        self._inodes = _named(self._shown(self._subtrees), () if self._has_all else self._possible_views())
        self._possible = {*self._inodes.values()}

    def _possible_views(self) -> Iterator[str]:
        """The views that the dataset may have, as far as is known before all of its shards are indexed."""
        yield from ("by-key", "slices", "manifests")
        listed = self.dataset.listed
        if any(shard.known.is_table for shard in listed):
            yield from ("columns", "by-label")
        if any(shard.is_cache_of_lance for shard in listed):
            yield from ("frames", "windows")
        if any(shard.may_have_items for shard in listed):
            yield "interleaved"

    def _shown(self, subtrees: Mapping[int, Subtree]) -> Collection[int]:
        """The views that are listed: not those of segments once it is known that there are not even recordings, nor
        that of tokens once it is known that there are none.
        """
        dataset, hidden = self.dataset, set[str]()
        if not dataset.is_indexed:
            return subtrees.keys()
        has_segments = any(shard.segments or shard.report_of_segments for shard in dataset.shards)
        if not (has_segments or dataset.has_recordings or dataset.is_empty):
            hidden |= {"segments", "merged"}
        if not dataset.has_tokens:
            hidden.add("tokens")
        return subtrees.keys() - {_NUMBERS[name] for name in hidden}

    def _views_of_all(self) -> dict[int, Subtree]:
        """The views for which something of all shards must be known."""
        dataset, shards, shown = self.dataset, self._shards, dict[str, Subtree]()
        if isinstance(dataset.keys, Keys):
            shown["by-key"] = ByKey(shards, dataset.keys, _NUMBERS["by-key"], listed=self._list_by_key)
        if dataset.has_recordings:
            from touchfs.tree.slices import Slices

            whole = _NUMBERS["slices/all"]
            slices = Slices(shards, self._numbers, _NUMBERS["slices"], whole)
            shown["slices"] = shown["slices/all"] = slices
        if shards.has_tables:
            from touchfs.tree.links.by_label import ByLabel
            from touchfs.tree.table_views import ColumnsView

            shown["columns"] = ColumnsView(shards, COLUMNS, _NUMBERS["columns"])
            shown["by-label"] = ByLabel(shards, _NUMBERS["by-label"])
        if dataset.has_videos:
            from touchfs.tree.videos.frames import FramesView, VideoShards
            from touchfs.tree.videos.windows import WindowsView

            shown["frames"] = frames = FramesView(shards, VideoShards(), _NUMBERS["frames"])
            number = _NUMBERS["windows"]
            inodes = PlannedInodes(self._numbers, number, WINDOWS_RECORD)
            shown["windows"] = WindowsView(shards, frames, inodes, number)
        if dataset.interleaved is not None:
            from touchfs.tree.interleaved import InterleavedView

            number = _NUMBERS["interleaved"]
            shown["interleaved"] = InterleavedView(dataset, dataset.interleaved, self._shard_ids, number)
        first = self._shown(self._first)
        views = {name for name, number in _NUMBERS.items() if name in shown or number in first}
        shown["manifests"] = Manifests(shards, views, os.path.join(self._prefix, ""), _NUMBERS["manifests"])
        return {_NUMBERS[name]: subtree for name, subtree in shown.items()}

    def await_all(self) -> None:
        """Have all views, once all shards are indexed. Raises SourceError if no index can be written."""
        if not self._has_all:
            if not self._may_wait:
                raise WouldBlockError
            self.dataset.indexed  # noqa: B018  all shards
            # Several threads may come here at once, and all find the same.
            subtrees = self._first | self._views_of_all()
            inodes = _named(self._shown(subtrees))
            absent = self._possible - {pack(view, 0, 0) for view in subtrees}  # where somebody may be by now
            empty = {inode >> VIEW_SHIFT: EmptyView(self._root._replace(inode=inode)) for inode in absent}
            self._subtrees, self._inodes = subtrees | empty, inodes
            self._has_all = True

    @property
    def nonblocking(self) -> Tree:
        """The same tree for one thread that must not block: a call that would block raises WouldBlockError."""
        shards, tree = NonblockingShards(self._shards), Tree.__new__(Tree)
        vars(tree).update(vars(self))
        nonblocking = {subtree: subtree.nonblocking(shards) for subtree in set(self._subtrees.values())}
        tree._shards, tree._may_wait = shards, False
        tree._subtrees = {view: nonblocking[subtree] for view, subtree in self._subtrees.items()}
        return tree

    def _subtree(self, inode: int) -> Subtree:
        subtree = self._subtrees.get(inode >> VIEW_SHIFT)
        if subtree is None:
            self.await_all()
            subtree = self._subtrees.get(inode >> VIEW_SHIFT)
        if subtree is None:
            raise ChangedError("this inode is not of this mount")
        return subtree

    def entry(self, inode: int) -> Entry:
        """The entry of an inode. Raises ChangedError for one of a shard that is no longer in this dataset."""
        if inode == ROOT:
            return self._root
        if not self._has_all and inode in self._inodes.values():  # also of a view that is not there yet
            return self._root._replace(inode=inode)
        return self._subtree(inode).entry(inode)

    def find(self, directory: int, name: bytes, is_guest: bool = False) -> Entry | None:
        """The entry of this name in a directory, or None. Raises FullError for guests as `Subtree.find`."""
        if directory != ROOT:
            return self._subtree(directory).find(directory, name, is_guest=is_guest)
        inode = self._inodes.get(name)
        return None if inode is None else self.entry(inode)

    def entries(self, directory: int, after: int = 0) -> Iterator[tuple[bytes, Entry, int]]:
        """`(name, entry, cookie)` of a directory's entries after the one with the cookie `after`; 0 lists all."""
        if directory != ROOT:
            yield from self._subtree(directory).entries(directory, after)
            return
        for cookie, (name, inode) in enumerate(self._inodes.items(), 1):
            if cookie > after:
                yield name, self.entry(inode), cookie

    def files(self, directory: int, after: int, count: int) -> ListedFiles | None:
        """The next `count` of `entries` as columns, if these are many files of known size in a shard's directory."""
        subtree = None if directory == ROOT else self._subtree(directory)
        return subtree.files(directory, after, count) if isinstance(subtree, CatalogView) else None

    def parent(self, directory: int) -> int:
        """The inode number of a directory's parent; the root is its own parent."""
        return ROOT if directory == ROOT else self._subtree(directory).parent(directory)

    def path(self, inode: int) -> str:
        """A path for error messages: of the file, but in `by-key/`, `by-label/` and `merged/` of its shard."""
        return "" if inode == ROOT else self._subtree(inode).path(inode)

    def content(self, inode: int) -> Content:
        """The content of a file. Opens and verifies the shard's file behind it. Raises UsageError for a directory."""
        if inode == ROOT:
            raise UsageError("is a directory")
        return self._subtree(inode).content(inode)

    def attributes(self, inode: int) -> dict[str, str]:
        """The extended attributes of a file, without their prefix `user.touchfs.`; empty for a directory."""
        return {} if inode == ROOT else self._subtree(inode).attributes(inode)

    def stored(self, inode: int) -> tuple[str, TreeShard, Table, int] | None:
        """View, shard, table and row of what is in a shard of `shards/` or `segments/`; None for all else."""
        number, shard_id, row = unpack(inode)
        view = next((name for name in ("shards", "segments") if _NUMBERS[name] == number), None)
        if view is None or not shard_id or inode == ROOT:
            return None
        shard = self._shards.get(shard_id)
        table = shard.tables.get(view)
        return None if table is None or row >= table.rows else (view, shard, table, row)

    def link(self, inode: int) -> bytes:
        """The target of a symbolic link. Raises UsageError if it is not one."""
        if inode == ROOT:
            raise UsageError("not a symbolic link")
        return self._subtree(inode).link(inode)

    def is_cacheable(self, directory: int) -> bool:
        """True if a directory's entries never change (`Subtree.is_cacheable`). Those of a view that is not there yet
        may.
        """
        subtree = self._subtrees.get(directory >> VIEW_SHIFT)
        return directory == ROOT or (subtree is not None and subtree.is_cacheable(directory))

    def is_of_all_shards(self, inode: int) -> bool:
        """True for what no shard has alone, and shows keys: links by key or label, lists, spans of all shards."""
        return not unpack(inode)[1] and (inode >> VIEW_SHIFT == _NUMBERS["manifests"] or not self.is_cacheable(inode))

    def needs_indexing(self, directory: int) -> bool:
        """True if to look into the directory of a shard indexes it. A tree that must not block indexes none."""
        if self._has_all or not self._may_wait:
            return False
        view, shard_id, _ = unpack(directory)
        is_known = self._shards.has_headers if view == _NUMBERS["shards"] else self._shards.has_index
        return bool(shard_id) and not is_known(shard_id)

    def is_growing(self, directory: int) -> bool:
        """True if the listing of a directory gets longer, with its time: that of plans."""
        return directory == self._growing

    def use_plan(self, name: str) -> None:
        """Register a plan if it is new, without the limit for guests. Raises FullError."""
        self.find(pack(_NUMBERS["merged"], 0, 0), os.fsencode(name))

    def resolve(self, path: str) -> Entry:
        """The entry of a `/`-separated path from the root. Follows links. Raises NotFoundError."""
        entry, above = self._root, ""
        for component in filter(None, path.split("/")):
            if not entry.is_directory:
                raise NotFoundError(f"{above} is a file", path=path)
            found = self._find_component(entry.inode, component)
            if found is None:
                problem = self._problem_of(entry.inode, component)
                raise NotFoundError(problem or f"there is no {component!r} in {above or '/'}", path=path)
            entry, above = found, f"{above}/{component}"
            if entry.is_link:
                # No link of this tree leads above the root or back to itself.
                entry = self.resolve(os.path.normpath(os.path.join(above, "..", os.fsdecode(self.link(entry.inode)))))
        return entry

    def _find_component(self, directory: int, name: str) -> Entry | None:
        """Like `find`, of a name that the kernel has not seen: it may be too long, or no name of a file at all."""
        try:
            encoded = os.fsencode(name)
        except UnicodeEncodeError:
            return None
        return self.find(directory, encoded) if len(encoded) <= NAME_MAX else None

    def _problem_of(self, directory: int, name: str) -> str:
        """Why a name is not that of a plan or a span, in a directory of these; else ""."""
        try:
            if directory == self._inodes.get(b"merged"):
                parse_plan(name)
            elif directory == self._inodes.get(b"slices"):
                from touchfs.view.slice_span import parse_span

                parse_span(name)
            elif directory == self._inodes.get(b"windows"):
                from touchfs.tree.videos.windows import parse_windows

                parse_windows(name)
            elif directory == self._inodes.get(b"tokens"):
                from touchfs.view.token_plan import parse_token_plan

                parse_token_plan(name)
        except UsageError as error:
            return error.message
        return ""


def _named(subtrees: Container[int], views: Iterable[str] = ()) -> dict[bytes, int]:
    """The inode numbers of the directories of the root by name: of the subtrees that are there, and of other views."""
    names = {*views, *(name for name, number in _NUMBERS.items() if number in subtrees)} - {"slices/all"}
    return {name.encode(): pack(_NUMBERS[name], 0, 0) for name in sorted(names)}
