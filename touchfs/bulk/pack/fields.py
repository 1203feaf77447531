"""Make the fields of a TouchNet sample from a line of a JSONL, as TouchNet's make_data does.

    audio      the recording `wav` as mono 16-bit PCM at one rate; such a WAV file is copied
    metainfo   the object itself, serialized again as JSON; with audio, its `sample_rate` is set
    video      the bytes of the file `video`
    texttoken  the ids of `text` by a tokenizer, without special tokens; without a tokenizer, `input_ids` of the row

A path is relative to the current directory, as in make_data; if nothing is there, to the JSONL. In a JSONL of another
store, it is one below the JSONL's directory. An empty `text` makes no sample, as in make_data, and neither do empty
`input_ids`.
"""

from __future__ import annotations

import json
import os
import stat
from array import array
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np

from touchfs.containers.touchnet.layout import mmidx
from touchfs.core.errors import FormatError, MissingExtraError, NotFoundError, SourceError, TouchfsError
from touchfs.core.extent import Buffer, drive
from touchfs.core.extras import install_hint
from touchfs.core.location import Location
from touchfs.format import wav
from touchfs.limits import LIMITS, Limits
from touchfs.media.audio import Arithmetic, decode
from touchfs.source.data import DATA

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DATATYPES = ("audio+metainfo", "metainfo", "audio", "video+metainfo", "texttoken")

# A smaller vocabulary is stored as uint16, any other as int32: the rule of TouchNet and Megatron.
_UINT16_VOCABULARY = 65500
# Ids are int32 at most.
VOCABULARY_MAX = 2**31
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class FieldBuilder:
    """Makes the fields of samples, with the same settings for all lines. `rate` is in Hz."""

    datatypes: str
    places: tuple[str, ...]  # directories that paths are relative to; the first one with the file counts
    rate: int
    arithmetic: Arithmetic
    tokenizer: str | None = None
    vocabulary: int = VOCABULARY_MAX
    limits: Limits = LIMITS

    @property
    def modalities(self) -> dict[str, np.dtype[Any]]:
        return {name: self._dtype(name) for name in self.datatypes.split("+")}

    def _dtype(self, modality: str) -> np.dtype[Any]:
        if modality == "texttoken":
            return np.dtype("<u2" if self.vocabulary < _UINT16_VOCABULARY else "<i4")
        return np.dtype("<i2" if modality == "audio" else "u1")

    @property
    def id_limit(self) -> int:
        """The bound of token ids. A tokenizer's ids may have gaps, and so exceed the size of its vocabulary."""
        if self.tokenizer is None:
            return self.vocabulary
        return 2**16 if self.vocabulary < _UINT16_VOCABULARY else VOCABULARY_MAX

    def make(self, line: str) -> dict[str, Buffer] | None:
        """The fields of a line, or None if it is empty. Raises FormatError, NotFoundError or SourceError."""
        row = parse_row(line)
        fields = {name: _MAKERS[name](row, self) for name in self.datatypes.split("+")}
        if self.datatypes == "texttoken" and not row["input_ids" if self.tokenizer is None else "text"]:
            return None
        return fields

    def largest_id(self, line: str) -> int:
        """The largest token id of a line, -1 if it has none."""
        return max(_ids(parse_row(line), self), default=-1)


def vocabulary_of(tokenizer: str) -> int:
    """The size of a tokenizer's vocabulary, added tokens included. Raises NotFoundError, SourceError, FormatError or
    MissingExtraError.
    """
    return _tokenizer(tokenizer).get_vocab_size(with_added_tokens=True)


def parse_row(line: str) -> dict[str, Any]:
    """Parse a line as a JSON object. Raises FormatError."""
    try:
        line.encode("utf-8")
        row = json.loads(line)
    except UnicodeEncodeError as error:
        raise FormatError("not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise FormatError("expected a JSON object")
    return row


def _audio(row: dict[str, Any], builder: FieldBuilder) -> Buffer:
    path, size = locate(row, "wav", builder)
    source = DATA.open(path)
    try:
        head = source.read(0, min(size, 12))
        if head[:4] in (b"RIFF", b"RF64", b"BW64") and head[8:] == b"WAVE":
            # Completeness is checked here, because libav accepts a truncated file.
            found = drive(wav.scan(size), source)
            if found.is_pcm16 and (found.channels, found.rate) == (1, builder.rate) and found.data_size % 2 == 0:
                _check_size(path, found.data_size, 2)
                return source.read(found.data_offset, found.data_size)
    except FormatError as error:
        raise error.at(path) from error
    finally:
        source.close()
    return _decoded(path, size, builder)


def _decoded(path: str, size: int, builder: FieldBuilder) -> Buffer:
    """A recording, decoded. libav reads files of this machine, so one of another store is copied here meanwhile."""
    if not Location.of(path).is_url:
        return decode(path, builder.rate, builder.arithmetic, builder.limits.decoded)
    with NamedTemporaryFile(prefix="touchfs-") as copy:
        with closing(DATA.open(path)) as source:
            for offset in range(0, size, _BLOCK):
                copy.write(source.read(offset, min(_BLOCK, size - offset)))
        copy.flush()
        try:
            return decode(copy.name, builder.rate, builder.arithmetic, builder.limits.decoded)
        except TouchfsError as error:  # its path is that of the copy
            raise type(error)(error.message, path=path) from error


def _metainfo(row: dict[str, Any], builder: FieldBuilder) -> Buffer:
    if "audio" in builder.datatypes:
        row = row | {"sample_rate": builder.rate}
    try:
        return json.dumps(row, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise FormatError(f"cannot be written as UTF-8: {error}") from error


def _video(row: dict[str, Any], builder: FieldBuilder) -> Buffer:
    path, size = locate(row, "video", builder)
    _check_size(path, size, 1)
    source = DATA.open(path)
    try:
        return source.read(0, size)
    finally:
        source.close()


def _texttoken(row: dict[str, Any], builder: FieldBuilder) -> Buffer:
    return np.asarray(_ids(row, builder), builder.modalities["texttoken"]).tobytes()


_MAKERS: Mapping[str, Callable[[dict[str, Any], FieldBuilder], Buffer]] = {
    "audio": _audio,
    "metainfo": _metainfo,
    "video": _video,
    "texttoken": _texttoken,
}


def _ids(row: dict[str, Any], builder: FieldBuilder) -> array[int]:
    if builder.tokenizer is not None:
        text = row.get("text")
        if not isinstance(text, str):
            raise FormatError('expected a text as "text"')
        if any("\ud800" <= character <= "\udfff" for character in text):  # JSON can contain a lone surrogate
            raise FormatError('the "text" cannot be written as UTF-8')
        ids: Any = _tokenizer(builder.tokenizer).encode(text, add_special_tokens=False).ids if text else []
    else:
        ids = row.get("input_ids")
        if not isinstance(ids, list) or not all(type(one) is int for one in ids):
            raise FormatError('expected a list of token ids as "input_ids" (or a tokenizer for "text")')
    if ids and not 0 <= min(ids) <= max(ids) < builder.id_limit:
        wrong = next(one for one in ids if not 0 <= one < builder.id_limit)
        raise FormatError(f"token id {wrong} is not in a vocabulary of {builder.id_limit}")
    return array("q", ids)


@cache
def _tokenizer(path: str) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtraError(f"a tokenizer needs its extra ({error}): {install_hint('tokenizers')}") from error
    _size(path)  # the tokenizer's own errors do not distinguish a missing file from a broken one
    try:
        tokenizer: Tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # it raises nothing more specific
        raise FormatError(f"not a tokenizer file: {error}", path=path) from error
    # As transformers calls it: no truncation, no padding.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def locate(row: dict[str, Any], field: str, builder: FieldBuilder) -> tuple[str, int]:
    """Path and size of the file that a field names. Raises FormatError, NotFoundError or SourceError."""
    name = row.get(field)
    if not isinstance(name, str):
        raise FormatError(f'expected the path of a file as "{field}"')
    places = [*map(Location.of, builder.places)]
    paths = [place.beneath(name) for place in places]
    if places[0].is_url:
        with closing(DATA.open_beneath(places[0].path, name)) as file:
            file.open()
            return paths[0], file.size
    path = next(filter(os.path.exists, paths), paths[-1])
    return path, _size(path)


def _size(path: str) -> int:
    try:
        found = os.stat(path)
    except FileNotFoundError as error:
        raise NotFoundError("no such file", path=path) from error
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise SourceError(f"cannot be read: {error}", path=path) from error
    if not stat.S_ISREG(found.st_mode):  # reading a pipe might never end
        raise SourceError("cannot be read: not a file", path=path)
    return found.st_size


def _check_size(path: str, size: int, width: int) -> None:
    """Raise FormatError if a file is too large for a sample, before it is read into memory."""
    if size // width >= mmidx.LENGTH_LIMIT:
        raise FormatError(f"{size} bytes are too many for a sample", path=path)
