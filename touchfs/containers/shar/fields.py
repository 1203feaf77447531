"""The fields of a Lhotse Shar: each is a file with a value for each cut of the shard, in the order of the cuts.

A tar has two members a cut: the value, and a JSON manifest that describes it.

    <cut>.wav  <cut>.json       also .flac .mp3 .opus .original, .npy, .llc (lilcom)
    <cut>.nodata  <cut>.nometa  the cut has no such value

A JSONL file has an object a cut, `{"cut_id": "<cut>", "<field>": …}`, without the field if the cut has no value.

Every value has the id of its cut (`touchfs.containers.shar.order`). A value that is out of order is searched for in the
whole file, and a missing one is a FormatError of its cut. Other members between the two of a cut, such as directories,
are ignored.
"""

from __future__ import annotations

from array import array
from math import prod
from sys import intern
from typing import Any, Protocol

from touchfs.containers.lines.reader import lines, read_line
from touchfs.containers.shar.order import CutIds, FieldOrder
from touchfs.containers.tar.layout.members import Member, MemberType, bounded, members
from touchfs.core.errors import FormatError
from touchfs.core.json_text import parse_json
from touchfs.core.progress import reached
from touchfs.form.arrays import Lilcom
from touchfs.form.base import Form
from touchfs.form.plain import BYTES, INLINE
from touchfs.format import magic
from touchfs.format.lhotse import find_value
from touchfs.limits import Limits
from touchfs.media import lilcom
from touchfs.shard.sample import Field
from touchfs.source.store import StoredFile

RECORDING = "recording"
_MISSING, _NO_MANIFEST, _MANIFEST = "nodata", "nometa", "json"
_ORIGINAL, _LILCOM = "original", "llc"
# A manifest usually has a few hundred bytes.
_MANIFEST_SIZE_MAX = 1 << 20
_ELEMENT_SIZE = 4
_REPORT_EVERY = 256


class Values(Protocol):
    """The values of one field. `problems` are those of its file, a line each."""

    name: str
    problems: list[str]

    def __len__(self) -> int: ...

    def value(self, ordinal: int, key: str) -> Field | None:
        """The value of the cut with this id and ordinal; None if the cut has none.

        Raises FormatError if it is missing.
        """
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class TarValues:
    """The values of a tar. Reads only headers; keeps the id, the extension, and the ranges of value and manifest."""

    def __init__(self, name: str, source: str, file: StoredFile, cuts: CutIds, limits: Limits) -> None:
        self.name = name
        self.problems: list[str] = []
        self.file = file
        self._source = source
        self._limits = limits
        self._keys: list[str | None] = []
        self._extensions: list[str] = []
        self._places = array("q")  # offset and size of each value, then of its manifest
        self._damage = ""
        self._scan()
        self._order = FieldOrder(source, self._keys, cuts)

    def __len__(self) -> int:
        return len(self._keys)

    def close(self) -> None:
        self.file.close()

    def value(self, ordinal: int, key: str) -> Field | None:
        """The value of a cut, or None if the cut has none. Raises FormatError if it is missing."""
        position = self._find(ordinal, key)
        extension = self._extensions[position]
        if extension == _MISSING:
            return None
        offset, size = self._places[4 * position : 4 * position + 2]
        form: Form = BYTES
        note = ""
        if extension == _ORIGINAL:
            extension = magic.extension(self.file.read(offset, min(size, magic.MAGIC_SIZE)))
        elif extension == _LILCOM:
            form, note = self._lilcom(offset, size)
            extension = _LILCOM if note else "npy"
        shown = extension if self.name == RECORDING else f"{self.name}.{extension}"
        return Field(self.name, self._source, offset, size, form, shown, note)

    def manifest(self, ordinal: int, key: str) -> dict[str, Any]:
        """The manifest of a value that exists. Raises FormatError if it is missing or not JSON."""
        position = self._find(ordinal, key)
        offset, size = self._places[4 * position + 2 : 4 * position + 4]
        if not size:
            raise FormatError(f"{key}.{self._extensions[position]} has no .{_MANIFEST} after it in {self._source}")
        if size > _MANIFEST_SIZE_MAX:
            raise FormatError(f"a manifest of {size} bytes in {self._source}", offset=offset)
        try:
            manifest = parse_json(bytes(self.file.read(offset, size)))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"the manifest in {self._source} is not JSON: {error}", offset=offset) from error
        return manifest if isinstance(manifest, dict) else {}

    def _find(self, ordinal: int, key: str) -> int:
        try:
            return self._order.find(ordinal, key)
        except FormatError as error:
            if self._damage:
                raise FormatError(f"{error.message}, or what it has is behind its damage: {self._damage}") from error
            raise

    def _lilcom(self, offset: int, size: int) -> tuple[Form, str]:
        """The form of a lilcom array, and a note if it cannot be shown as .npy."""
        if not lilcom.is_installed():
            return BYTES, "lilcom is not installed: pip install lilcom, and index again, to see .npy"
        shape = lilcom.shape(self.file.read(offset, min(size, lilcom.HEAD_SIZE)))
        if not shape or prod(shape) * _ELEMENT_SIZE > self._limits.decoded:
            return BYTES, f"shown as .npy are arrays of up to {self._limits.decoded:,} bytes: see --max-decoded"
        return Lilcom(shape), ""

    def _scan(self) -> None:
        value: Member | None = None
        try:
            size = self.file.size
            for number, member in enumerate(bounded(members(self.file.read, size), self._limits.members)):
                if number % _REPORT_EVERY == 0:
                    reached(member.offset, size)
                if member.kind is MemberType.DIRECTORY:
                    continue
                key, extension = _split(member.name)
                if member.kind is not MemberType.FILE or member.pieces is not None or not extension:
                    self._report(member, "is no value of a cut")
                elif extension not in (_MANIFEST, _NO_MANIFEST):
                    self._add(value)
                    value = member
                elif value is not None and _split(value.name)[0] == key:
                    self._add(value, member)
                    value = None
                else:
                    self._report(member, "does not come after its value")
        except FormatError as error:
            self._damage = str(error)
            self.problems.append(f"{error.at(self.file.path)}; what comes after it cannot be found")
        self._add(value)

    def _add(self, value: Member | None, manifest: Member | None = None) -> None:
        if value is not None:
            key, extension = _split(value.name)
            self._keys.append(key)
            self._extensions.append(intern(extension))
            place = (0, 0) if manifest is None else (manifest.offset, manifest.size)
            self._places.extend((value.offset, value.size, *place))

    def _report(self, member: Member, problem: str) -> None:
        name = member.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        self.problems.append(f"{self._source}: {name!r} {problem} (at byte {member.header_offset}): not shown")


def _split(name: str) -> tuple[str, str]:
    """The id of the cut and the extension, "" if there is none. An id may contain dots and slashes."""
    key, _, extension = name.rpartition(".")
    return (name, "") if not key or "/" in extension else (key, extension)


class JsonlValues:
    """The values of a JSONL file. A string is shown as text, any other value as JSON: its bytes in the file.

    A string with JSON escapes is not a range of the file, so its text is computed.
    """

    def __init__(self, name: str, source: str, file: StoredFile, cuts: CutIds, limits: Limits) -> None:
        self.name = name
        self.problems: list[str] = []
        self._source = source
        self._file = file
        self._limit = limits.json
        self._lines = lines(file)
        keys = [self._key(offset, size) for offset, size in self._lines.tolist()]
        if keys and not any(keys):
            raise FormatError(f"{source} is not a field: none of its lines has a cut_id. It is not shown")
        self._order = FieldOrder(source, keys, cuts)

    def __len__(self) -> int:
        return len(self._lines)

    def close(self) -> None:
        self._file.close()

    def value(self, ordinal: int, key: str) -> Field | None:
        """The value of a cut, or None if the cut has none. Raises FormatError if its line is missing."""
        offset, size = self._lines[self._order.find(ordinal, key)].tolist()
        line = self._file.read(offset, size)
        found = find_value(line, self.name)
        if found is None:
            return None
        value, start, length = found
        if not isinstance(value, str):
            return Field(self.name, self._source, offset + start, length, BYTES, f"{self.name}.json")
        shown = f"{self.name}.txt"
        if b"\\" not in line[start : start + length]:
            return Field(self.name, self._source, offset + start + 1, length - 2, BYTES, shown)
        # Half a surrogate pair, which JSON can spell, becomes U+FFFD.
        text = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
        return Field(self.name, self._source, offset + start, length, INLINE, shown, detail=text)

    def _key(self, offset: int, size: int) -> str | None:
        parsed, problem = read_line(self._file, offset, size, self._limit)
        key = parsed.get("cut_id")
        if type(key) is int:
            return str(key)
        if isinstance(key, str):
            return key
        self.problems.append(f"{self._source}: {problem or f'the line at byte {offset} has no cut_id'}: not shown")
        return None
