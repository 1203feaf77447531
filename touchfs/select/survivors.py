"""The survivor index: the positions of the samples that a filter expression keeps.

A filtered sequence has no known length and no random access until all its samples have been evaluated once. That
happens here, and the result is stored in a file named by the identity of the dataset's files and the canonical text of
the expression, so each pair of them is evaluated once:

    0       8s "TOUCHSRV"   u32 version   u32 fields   u64 samples   u64 survivors   16s identity   16s digest
    64      positions, ascending: u32 each if they fit for every sample of the dataset, else i64
    then    u64 for each field of the expression, sorted: how many samples have it
    then    u64 for each of these: the kinds of its values (`Kinds`)
    last    u64 samples whose recording has no known length, 16s digest of these two

All numbers are little-endian. The identity is the hash of those two, the digest that of positions and numbers
of samples, which stays the same as in version 2: states have it.
An expression that looks up keys in lists looks at no other facts of samples about which that decides. Then only the
number of keys counts samples: that of another field is 1 if any sample of all has it.
The digest is checked at every opening, which takes about a second for 200 million survivors; a damaged file is made
again. Only the files used last are kept.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeAlias

import numpy as np
import platformdirs
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, NotFoundError, UntrustedError, UnwritableError, UsageError, map_os_errors
from touchfs.core.jobs import one_ahead
from touchfs.core.packed_bytes import PackedBytes
from touchfs.posix.atomic import write_error
from touchfs.posix.trust import atomic_own_file, check_trusted_directory, make_directory, make_private, open_trusted
from touchfs.select.expression import Where, spell_field
from touchfs.select.predicates import Bounds, Kinds, OfKeys, Path, getter, kinds_of
from touchfs.source.mapped import map_file

log = logging.getLogger(__name__)

Positions: TypeAlias = NDArray[np.uint32] | NDArray[np.int64]

HEADER = struct.Struct("<8sIIQQ16s16s")
MAGIC = b"TOUCHSRV"
# 1 had other facts: the rate of a sample was only that in its JSON. 2 had no kinds of values. 3 read no recordings.
# 4 had no `segments` and no `characters`.
VERSION = 5
SUFFIX = ".survivors"
_COUNT = np.dtype("<u8")
_DIGEST_SIZE = 16
_SMALL, _LARGE = np.dtype("<u4"), np.dtype("<i8")
# Positions in a larger dataset are i64.
_SMALL_SAMPLES = 1 << 32
# Samples evaluated between two reports of progress: some milliseconds if their facts are cached.
_STEP_SAMPLES = 1 << 12
# And keys that are looked up together: 30 MB of them.
_STEP_KEYS = 1 << 19
_KEPT = 100
_KEY: Path = ("key",)
# The fields that a sample may have besides those of its .json. If it has a text, it has both of `_OF_TEXTS`.
_OF_TEXTS = ("text", "characters")
_FIELDS = (
    *("key", "shard", "ordinal", "segment", "segments", "size.EXT"),
    *(*_OF_TEXTS, "duration", "rate", "channels", "coding"),
)


class Survivors(NamedTuple):
    """The survivors' ascending `positions`, of shape (n,), and a `digest` that identifies them on any machine."""

    positions: Positions
    digest: bytes


class _Evaluated(NamedTuple):
    """The content of a file. `counts` are how many samples have each field, `kinds` those of its values."""

    survivors: Survivors
    counts: list[int]
    kinds: list[Kinds]
    unmeasured: int


class Filterable(Protocol):
    """A sequence of samples with facts."""

    def __len__(self) -> int: ...

    @property
    def identity(self) -> str:
        """A string that differs if the files of the samples differ."""

    @property
    def unmeasured(self) -> int:
        """How many samples, of those that were yielded, have a recording without a duration, which is used."""
        ...

    def records(self, start: int, stop: int) -> Iterator[Mapping[str, Any]]:
        """Yield the facts of each sample in [start, stop)."""
        ...

    def keys(self, start: int, stop: int) -> Iterator[PackedBytes]:
        """Yield the keys of the samples in [start, stop), in batches."""
        ...


def survivors_directory(beside: str | None = None) -> str:
    """The directory for these files: beside a state store, or for the library in the user's cache."""
    return os.path.join(beside or platformdirs.user_cache_dir("touchfs"), "survivors")


def survivors(
    samples: Filterable,
    where: Where,
    path: str,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Survivors:
    """Return the samples that match, mapped from their file in the directory `path`.

    A missing or damaged file is made; `progress` is called with the number of samples evaluated, and of all samples.
    Raises UsageError for a field that no sample has, SourceError if the file cannot be read or written. If we have no
    permission to write, or others could write there, the survivors are kept in memory, and the log says so.
    """
    identity = _hash(f"{samples.identity}\0{where}".encode(errors="surrogatepass")).digest()
    file, fields = os.path.join(path, identity.hex() + SUFFIX), len(where.fields)
    known = None
    with suppress(NotFoundError, FormatError, UntrustedError):
        known = _open(file, identity, len(samples), fields)
    if known is None:
        try:
            _make_directory(path)
            with atomic_own_file(file) as made:
                _build(made, identity, samples, where, progress)
            known = _open(file, identity, len(samples), fields)
            _keep_latest(path)
        except (UntrustedError, UnwritableError) as error:
            log.warning("%s: the survivors are kept in memory", error)
            with open(os.memfd_create("touchfs-survivors"), "w+b") as made:
                _build(made, identity, samples, where, progress)
                made.flush()
                known = _parse(made.fileno(), file, identity, len(samples), fields)
    if len(samples):
        _check(known, where)
    if known.unmeasured:
        log.warning("where: %s no known duration: `touchfs index --full`", _have(known.unmeasured))
    return known.survivors


def _have(samples: int) -> str:
    return f"{samples:,} samples have" if samples != 1 else "1 sample has"


def _check(known: _Evaluated, where: Where) -> None:
    """Raise UsageError for fields that no sample has, and for comparisons that are true for no value of theirs."""
    if problem := _problem(where, known.counts, known.kinds):
        is_unknown = not all(known.counts) and known.unmeasured
        hint = f"; {_have(known.unmeasured)} no known duration: `touchfs index --full`" if is_unknown else ""
        raise UsageError(problem + hint)


def _problem(where: Where, counts: Sequence[int], all_kinds: Sequence[Kinds]) -> str:
    paths = sorted(where.fields)
    if unknown := [spell_field(path) for path, count in zip(paths, counts, strict=True) if not count]:
        has_text = not set(_OF_TEXTS) & set(unknown)
        reason = "" if has_text else ", as this dataset has no text"
        others = [name for name in _FIELDS if name not in unknown and (has_text or name not in _OF_TEXTS)]
        what = f"name one of the .json, or {', '.join(others)} or a text file as cls"
        dotted = {_with_dots(path) for path, count in zip(paths, counts, strict=True) if not count} - {*unknown}
        hint = f"; a name that has dots is in quotes: {', '.join(sorted(dotted))}" if dotted else ""
        return f"where: no sample has the field {', '.join(unknown)}{reason}: {what}{hint}"
    found = dict(zip(paths, all_kinds, strict=True))
    for path, wanted in where.kinds:
        kinds = found[path] & ~Kinds.NULL
        if kinds and not kinds & wanted and Kinds.NULL not in wanted:
            name = spell_field(path)
            return f"where: {name} is {kinds.spelled()}, never {wanted.spelled()}: no sample can match"
    return ""


def _with_dots(path: Path) -> str:
    """A field as it is spelled if the dots in it are part of a name, as of a column, or the extension of a file."""
    before = path[:1] if path[0] == "size" else ()
    return spell_field((*before, ".".join(path[len(before) :])))


def _open(path: str, identity: bytes, samples: int, fields: int) -> _Evaluated:
    with map_os_errors(path), open(open_trusted(path), "rb") as file:
        with suppress(PermissionError):
            os.utime(file.fileno())
        return _parse(file.fileno(), path, identity, samples, fields)


def _parse(descriptor: int, path: str, identity: bytes, samples: int, fields: int) -> _Evaluated:
    data = map_file(descriptor)
    size = len(data)
    if size < HEADER.size:
        raise FormatError("not an index of survivors", path=path, offset=0)
    *head, count, of, digest = HEADER.unpack_from(data)
    dtype = _dtype(samples)
    end = HEADER.size + count * dtype.itemsize
    last = end + fields * _COUNT.itemsize
    tail = (fields + 1) * _COUNT.itemsize
    if head != [MAGIC, VERSION, fields, samples] or of != identity or size != last + tail + _DIGEST_SIZE:
        raise FormatError("not the index of survivors of these samples", path=path, offset=0)
    if (
        _hash(data[HEADER.size : last]).digest() + _hash(data[last : last + tail]).digest()
        != digest + data[last + tail :]
    ):
        raise FormatError("a damaged index of survivors", path=path, offset=HEADER.size)
    found = Survivors(np.frombuffer(data, dtype, count, HEADER.size), digest)
    if count and not 0 <= found.positions.min() <= found.positions.max() < samples:
        raise FormatError("an index of survivors of other samples", path=path, offset=HEADER.size)
    *kinds, unmeasured = np.frombuffer(data[last : last + tail], _COUNT).tolist()
    return _Evaluated(found, np.frombuffer(data[end:last], _COUNT).tolist(), [*map(Kinds, kinds)], unmeasured)


def _keep_latest(directory: str) -> None:
    """Delete all files but those used last. A process that has mapped a deleted file can still use it."""
    with suppress(OSError):  # another process does the same
        files = [entry for entry in os.scandir(directory) if entry.name.endswith(SUFFIX)]
        for entry in sorted(files, key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)[:-_KEPT]:
            os.unlink(entry.path)


def _build(
    file: BinaryIO, identity: bytes, samples: Filterable, where: Where, progress: Callable[[int, int], None]
) -> None:
    total, dtype = len(samples), _dtype(len(samples))
    survived, digest = 0, _hash(b"")
    progress(0, total)
    file.write(bytes(HEADER.size))
    fields = _Fields(where)
    evaluated = _by_facts(samples, fields) if where.of_keys is None else _by_keys(samples, fields, where.of_keys)
    for done, kept in evaluated:
        piece = kept.astype(dtype).tobytes()
        file.write(piece)
        digest.update(piece)
        survived += len(kept)
        progress(done, total)
    piece = np.array(fields.counts, _COUNT).tobytes()
    file.write(piece)
    digest.update(piece)
    tail = np.array([*map(int, fields.kinds), samples.unmeasured], _COUNT).tobytes()
    file.write(tail + _hash(tail).digest())
    file.seek(0)
    file.write(HEADER.pack(MAGIC, VERSION, len(fields.counts), total, survived, identity, digest.digest()))


class _Fields:
    """The fields of an expression in samples that were looked at: how many have each, and the kinds of its values."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._paths = sorted(where.fields)
        self._get = [getter(path) for path in self._paths]
        self._matches = where.rest  # without lists of ids, that is all of it
        self.counts = [0] * len(self._paths)
        self.kinds = [Kinds(0)] * len(self._paths)

    def matches(self, facts: Mapping[str, Any]) -> bool:
        """Look at the facts of a sample about which keys do not decide. Returns whether it passes."""
        for i, get in enumerate(self._get):
            if found := kinds_of(get(facts)):
                self.counts[i] += 1
                self.kinds[i] |= found
        return self._matches(facts)

    @property
    def problem(self) -> str:
        """What is wrong with the expression, if these are all samples; "" if nothing is."""
        return _problem(self._where, self.counts, self.kinds)

    def only_by_keys(self, total: int) -> None:
        """Change the counts to those of an expression that looked at some of the samples: each has a key, and of other
        fields is told whether any sample has them.
        """
        for i, path in enumerate(self._paths):
            self.counts[i] = total if path == _KEY else int(self.counts[i] > 0)
            self.kinds[i] |= Kinds.TEXT if path == _KEY and total else Kinds(0)


def _by_keys(samples: Filterable, fields: _Fields, of_keys: OfKeys) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield how many samples are evaluated, and the positions of those that were kept since. Only samples are looked at
    about which keys do not decide.
    """
    for first, (must, may) in _bounds(samples, of_keys):
        passed = must.copy()
        for start, stop in _runs(may & ~must):
            passed[start:stop] = [*map(fields.matches, _records(samples, first + start, first + stop))]
        yield first + len(passed), first + np.flatnonzero(passed)
    fields.only_by_keys(len(samples))
    if fields.problem:
        _look_at_others(samples, fields, of_keys)
        fields.only_by_keys(len(samples))


def _look_at_others(samples: Filterable, fields: _Fields, of_keys: OfKeys) -> None:
    """Look at the samples about which keys decided, until nothing is wrong with the expression."""
    for first, (must, may) in _bounds(samples, of_keys):
        for start, stop in _runs(must | ~may):
            for facts in samples.records(first + start, first + stop):
                fields.matches(facts)
                if not fields.problem:
                    return


def _bounds(samples: Filterable, of_keys: OfKeys) -> Iterator[tuple[int, Bounds]]:
    """Yield what keys say about the samples, batch by batch, each with the position of its first one."""
    total, first = len(samples), 0
    steps = (samples.keys(start, min(start + _STEP_KEYS, total)) for start in range(0, total, _STEP_KEYS))
    for keys in one_ahead(chain.from_iterable(steps)):
        yield first, of_keys(keys)
        first += len(keys.lengths)


def _runs(chosen: NDArray[np.bool_]) -> list[list[int]]:
    """The begin and the end of each run of chosen places, of at most `_STEP_SAMPLES`."""
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False)).reshape(-1, 2)
    return [
        [start, min(start + _STEP_SAMPLES, stop)]
        for begin, stop in edges.tolist()
        for start in range(begin, stop, _STEP_SAMPLES)
    ]


def _by_facts(samples: Filterable, fields: _Fields) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Like `_by_keys`, for an expression that looks at all samples."""
    total = len(samples)
    for start in range(0, total, _STEP_SAMPLES):
        stop = min(start + _STEP_SAMPLES, total)
        passed = np.array([*map(fields.matches, _records(samples, start, stop))], bool)
        yield stop, start + np.flatnonzero(passed)


def _records(samples: Filterable, start: int, stop: int) -> Iterator[Mapping[str, Any]]:
    """The facts of each sample in [start, stop). Raises ValueError if there are more or fewer."""
    return (facts for _, facts in zip(range(start, stop), samples.records(start, stop), strict=True))


def _make_directory(path: str) -> None:
    try:
        make_directory(path)
        check_trusted_directory(path)
        make_private(path)
    except OSError as error:
        raise write_error(error, f"no index of survivors can be written: {error.strerror}", path) from error


def _dtype(samples: int) -> np.dtype[Any]:
    return _SMALL if samples <= _SMALL_SAMPLES else _LARGE


def _hash(data: bytes | memoryview) -> hashlib.blake2b:
    return hashlib.blake2b(data, digest_size=_DIGEST_SIZE)
