"""What shards that are archives have in common: members under their own paths, grouped into samples.

Members with the same key are the fields of a sample. By WebDataset's rule the key is the path up to the first dot of
its last component, and the rest, in lower case, names the field; by WeNet's (`last-dot`) it is up to the last dot. The
members of a sample need not be adjacent, as they must be for a streaming reader. A member whose field its sample
already has begins another sample with the same key, so grouping hides nothing. Members without a key, such as `README`,
`.DS_Store` and `__info__/a.txt`, belong to no sample. They are shown, too, and all names keep their case.

Path components that are empty or `.` mean nothing and are not shown: `tar -C dir -cf x.tar .` begins each path with
`./`. The key keeps them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from touchfs.containers.tar.layout.grouping import webdataset_split
from touchfs.media.duration import AudioInfo
from touchfs.shard.options import FIRST_DOT
from touchfs.shard.sample import Field, Recording, StoredRecording, StoredSample, StoredSamples, UnmeasuredRecording


def split_name(name: str, key_rule: str = FIRST_DOT) -> tuple[str, str] | None:
    """Split the name of a member into key and extension; None if it has no key by WebDataset's rule."""
    found = webdataset_split(name)
    if found is None or key_rule == FIRST_DOT:
        return found
    key, _, extension = name.rpartition(".")
    return key, extension


class _Named(Protocol):
    @property
    def name(self) -> str: ...


M = TypeVar("M", bound=_Named)


class ArchiveShard(StoredSamples, Generic[M]):
    """The samples of an archive with these members."""

    index_size = 0

    def __init__(self, members: Iterable[M], key_rule: str) -> None:
        self._others: list[M] = []
        self._samples = self._group(members, key_rule)

    def __len__(self) -> int:
        return len(self._samples)

    def sample(self, ordinal: int) -> StoredSample:
        """The sample at an ordinal. Reads nothing."""
        key, fields = self._samples[ordinal]
        shown = {name: self._field(name, member, member.name[len(key) + 1 :]) for name, member in fields.items()}
        return StoredSample(key, ordinal, shown, recording=self._recording(fields, shown))

    @property
    def others(self) -> Iterator[tuple[str, Field]]:
        return ((member.name, self._field(None, member)) for member in self._others)

    @abstractmethod
    def _field(self, extension: str | None, member: M, written: str | None = None) -> Field:
        """The field of a member."""

    @abstractmethod
    def _sound(self, member: M) -> AudioInfo | None:
        """Rate and length of a recording, if its header has told them."""

    def _recording(self, members: Mapping[str, M], fields: Mapping[str, Field]) -> Recording | None:
        """The first recording whose header has its length, else the first one."""
        for name, member in members.items():
            if (sound := self._sound(member)) is not None:
                return StoredRecording.measured(fields[name], sound)
        return UnmeasuredRecording.first(fields.values())

    def _group(self, members: Iterable[M], key_rule: str) -> list[tuple[str, dict[str, M]]]:
        samples: list[tuple[str, dict[str, M]]] = []
        last: dict[str, dict[str, M]] = {}  # by key, the fields of its last sample
        for member in members:
            split = split_name(member.name, key_rule)
            if split is None:
                self._others.append(member)
                continue
            key, extension = split
            field = extension.lower()
            fields = last.get(key)
            if fields is None or field in fields:
                # Version 0.1 split names at the first dot after a letter of the last component, and kept their case.
                if key.endswith("/") or (fields is not None and fields[field].name != member.name):
                    self.regrouped += 1
                fields = last[key] = {}
                samples.append((key, fields))
            fields[field] = member
        self.regrouped += len(self._others)
        return samples
