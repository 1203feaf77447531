"""A shard of a dataset: what is known before it is indexed, and after."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from touchfs.catalog.key_endings import Endings
from touchfs.core.names import hex_digest
from touchfs.format.cache_metadata import METADATA_FILE
from touchfs.format.idx import AUDIO_NAMES, INDEX_SUFFIX, METAINFO_NAMES
from touchfs.registry.containers import DIRECTORY, MEGATRON, PARQUET, Container
from touchfs.registry.open import KnownShard
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.store import StoredFile
from touchfs.tables.shards.lance_files import is_lance

# In the name of a catalog with the files of overlays, between that of the shard's own one and its suffix
OVERLAID = ".overlay-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedShard:
    """A shard as it is known before it is indexed.

    `name` is its unique directory name in the tree, and `catalog` the path where its catalog is, or will be. `split` is
    its split, "" if it is of none, and `directory` the directory of that below `shards/`, as `train/`, if the dataset
    has shards of several splits. `partition` has the values of its directories (`touchfs.tables.values.partition`).
    """

    name: str
    path: str
    container: Container
    files: dict[str, Fingerprint]
    catalog: str
    split: str = ""
    directory: str = ""
    partition: str = ""

    @property
    def known(self) -> KnownShard:
        """The shard itself, without what its catalog says of it."""
        return KnownShard(self.path, self.container, self.files)

    def path_in(self, view: str) -> str:
        """The path of its directory in a view, relative to the root of the tree."""
        return f"{view}/{self.directory if view == 'shards' else ''}{self.name}"

    @property
    def base_catalog(self) -> str:
        """The path of its catalog without the files of overlays."""
        stem, suffix = os.path.splitext(self.catalog)
        return f"{stem.rpartition(OVERLAID)[0]}{suffix}" if OVERLAID in os.path.basename(stem) else self.catalog

    @property
    def mtime_ns(self) -> int:
        """The latest modification time of its files, in nanoseconds; 0 if there are none."""
        return max((fingerprint.mtime_ns for fingerprint in self.files.values()), default=0)

    @property
    def version(self) -> str:
        """A hash that changes when a file of the shard changes, and with all that is in the name of its catalog: the
        options, and the version of catalogs.
        """
        listed = [f"{name}\0{fingerprint.hashed}" for name, fingerprint in self.files.items()]
        return _hashed([*listed, os.path.basename(self.catalog)])

    @property
    def identity(self) -> str:
        """A hash that changes when a file of the shard or a row of its catalog changes. Shard ids are assigned by it.

        It does not change when the shard is indexed, unless lengths of recordings are read.
        """
        return self.version

    @property
    def is_cache_of_lance(self) -> bool:
        """True if the shard is a Lance cache, whose samples may be nothing but JSON."""
        return METADATA_FILE in self.files and is_lance(self.files)

    @property
    def may_have_items(self) -> bool:
        """True if the shard is of a kind that can have interleaved samples."""
        return self.container.keys_are_paths or self.container is PARQUET

    @property
    def may_have_tokens(self) -> bool:
        """True if the shard is a .bin and its .idx, or a directory of such that are not only sound and its metainfo."""
        names = {name.removesuffix(INDEX_SUFFIX) for name in self.files if name.endswith(INDEX_SUFFIX)}
        is_other = self.container is DIRECTORY and names - AUDIO_NAMES - METAINFO_NAMES
        return self.container is MEGATRON or bool(is_other)

    def source(self, name: str) -> StoredFile:
        """Open a file of the shard by name, as given by `source` of a kind of file in its catalog."""
        return self.known.open_source(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard(ListedShard):
    """The facts about an indexed shard that are known without opening its catalog.

    Sizes are in bytes; `seconds` and `timed` are the total duration and the number of the samples whose duration is
    known. `segments` counts those of all samples, `unmeasured` the samples whose recording has to be read to know its
    length, and `measured` those whose recording was; `regrouped` counts the files that once were in other samples.
    `report` is the text of its ERROR.txt in `shards/`, and `report_of_segments` that in `segments/`; "" if nothing is
    wrong.
    """

    samples: int
    seconds: float
    size: int
    index_size: int
    catalog_size: int
    damaged: int
    report: str
    report_of_segments: str
    timed: int
    endings: Endings
    segments: int
    unmeasured: int
    measured: int = 0
    regrouped: int = 0

    @property
    def base(self) -> Shard:
        """The shard without overlays."""
        return replace(self, catalog=self.base_catalog)

    @property
    def identity(self) -> str:
        return _hashed([self.version, f"measured {self.measured}"]) if self.measured else self.version

    @property
    def reports(self) -> dict[str, str]:
        """What is wrong with it: the texts of its ERROR.txt by their views."""
        reports = {"shards": self.report, "segments": self.report_of_segments}
        return {view: report for view, report in reports.items() if report}

    @property
    def may_have_videos(self) -> bool:
        """True if the shard is a Lance cache, and its samples are nothing but JSON."""
        return self.samples > 0 and self.is_cache_of_lance and self.endings.suffixes == (".json",)


def _hashed(facts: Sequence[str]) -> str:
    return hex_digest("\0".join(facts).encode(errors="surrogateescape"))
