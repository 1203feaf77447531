"""The table of forms. Catalogs store a form as a short string: its name, and its parameters after slashes.

    bytes                    the bytes are the file
    inline                   the catalog holds the bytes, which were computed from the field
    sparse                   pieces of a file with holes, end to end
    npy/DTYPE[/N/M…]         an array of a NumPy dtype, one-dimensional by default
    lilcom/N[/M…]            an array of this shape compressed by lilcom; the file is its .npy of 32-bit floats
    wav/RATE[/CHANNELS[/FORMAT]]
                             headerless PCM, mono and s16 by default (little-endian; touchfs.media.coding.sample_format)
    decoded/RATE/CHANNELS[/FORMAT]
                             a recording in any coding; the file is a WAV of some of its samples, s16 by default
    unmeasured               a recording of unknown rate and length; the file is a WAV of some seconds of it
    video                    a video in any container; the file is an MP4 of some seconds of it
    packed/CODEC[/FORM]      a range of a decompressed buffer of an Arrow file, in the form bytes or npy
    parquet/PATH[/FORM]      a cell of a column of bytes of a Parquet file, in a form if its bytes are not the file
    parquet-list/COLUMN/DTYPE/N[/M…]
    parquet-item/PATH/ITEM   an element of a list of bytes
                             a list of numbers of a Parquet file as a .npy
    beside/FORM              a file below the audio root, or a piece of it in a form of recordings or videos
    asset                    a file in `_assets/video/` beside an Arrow file
    row[/PATH…][/VALUES]     a row of an Arrow file as JSON, without the cells at these paths, and with the values
                             of its directories
    lance/PATH[/FORM]        a cell of a Lance dataset, in a form if its bytes are not the file
    lance-row[/PATH…][/VALUES]
                             a row of a Lance dataset as JSON, in the same way
    lance-video/PATH/EXTENSION
                             the record of a video whose frames are cells at a path of a Lance dataset
    numbers/PATH/ROWS/DTYPE[/N…]
                             a column of numbers of an Arrow file as one .npy
    values/COLUMN[/PATH…]    a column of an Arrow file as JSON lines, without the cells at these paths
    document                 a text or the metadata in the JSON of an interleaved sample
    tiff-frame               a frame of a TIFF file, as a file of its own
    tiff-reencoded           a frame of a TIFF file that cannot be copied, encoded again without loss
    sample-rows[/PATH…]      rows of an Arrow or Parquet file as one JSON, without the cells at these paths
    located                  an image in another file, which a row names
    failed                   no bytes: a read fails with the reason

A new form is a class and a row of this table. Nothing else names forms but the reader of the shards that have it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from touchfs.core.errors import FormatError
from touchfs.form.arrays import Lilcom, Npy
from touchfs.form.base import Form
from touchfs.form.beside import WHOLE, Beside
from touchfs.form.plain import BYTES, INLINE, SPARSE
from touchfs.form.recordings import Decoded, Pcm
from touchfs.form.unmeasured import Unmeasured
from touchfs.form.video.video_span import VideoSpan
from touchfs.tables.rows.row import Row
from touchfs.tables.values.field_paths import parse_path
from touchfs.tables.values.row_texts import parse_row

# The functions that make a form from its parameters, which are strings.
FORMS: Mapping[str, Callable[..., Form]] = {
    "bytes": lambda: BYTES,
    "inline": lambda: INLINE,
    "sparse": lambda: SPARSE,
    "npy": lambda dtype, *shape: Npy(dtype, tuple(map(int, shape))),
    "lilcom": lambda *shape: Lilcom(tuple(map(int, shape))),
    "wav": lambda rate, channels=1, *sample_format: Pcm(int(rate), int(channels), *sample_format),
    "decoded": lambda rate, channels, *sample_format: Decoded(int(rate), int(channels), *sample_format),
    "unmeasured": Unmeasured,
    "video": VideoSpan,
    "packed": lambda codec, *form: _packed(codec, _inner(form)),
    "asset": lambda: _rare("touchfs.tables.rows.asset").Asset(),
    "row": Row.parse,
    "lance": lambda path, *form: _rare("touchfs.tables.lance.forms").LanceCell(parse_path(path), _inner(form)),
    "lance-row": lambda *parameters: _rare("touchfs.tables.lance.forms").LanceRow(*parse_row(parameters)),
    "lance-video": lambda path, extension: _rare("touchfs.tables.lance.forms").LanceVideo(parse_path(path), extension),
    "numbers": lambda *parameters: _rare("touchfs.tables.rows.whole_column").NumberColumn.parse(*parameters),
    "values": lambda *parameters: _rare("touchfs.tables.rows.whole_column").ValueColumn.parse(*parameters),
    "document": lambda: _rare("touchfs.interleaved.forms.document").DOCUMENT,
    "tiff-frame": lambda: _rare("touchfs.interleaved.forms.tiff_frame").TIFF_FRAME,
    "tiff-reencoded": lambda: _rare("touchfs.interleaved.forms.tiff_reencoded").TIFF_REENCODED,
    "sample-rows": lambda *paths: _rare("touchfs.interleaved.forms.sample_rows").SampleRows.parse(*paths),
    "located": lambda: _rare("touchfs.interleaved.forms.located").LOCATED,
    "failed": lambda: _rare("touchfs.interleaved.forms.failed").FAILED,
    "parquet": lambda path, *form: _rare("touchfs.tables.parquet.parquet_cell").ParquetCell(
        parse_path(path), _inner(form)
    ),
    "parquet-list": lambda *parameters: _rare("touchfs.tables.parquet.parquet_list").ParquetList.parse(*parameters),
    "parquet-item": lambda path, item: _rare("touchfs.tables.parquet.parquet_item").ParquetItem.parse(path, item),
    "beside": lambda *form: _beside(parse_form("/".join(form))),
}


def parse_form(text: str) -> Form:
    """Parse a form as a catalog stores it. Raises FormatError for one that is unknown, or that no writer writes."""
    name, *parameters = text.split("/")
    make = FORMS.get(name)
    if make is None:
        raise FormatError(f"the catalog names a form {text!r} that this touchfs does not know")
    try:
        form = make(*parameters)
    except (FormatError, TypeError, ValueError) as error:
        raise _damaged(text) from error
    if str(form) != text:  # as `wav/+8000`
        raise _damaged(text)
    return form


def _rare(module: str) -> Any:
    """A module of forms that few catalogs have: it is imported when a catalog names one of them."""
    return importlib.import_module(module)


def _inner(parameters: tuple[str, ...]) -> Form:
    """The form in which another one finds its bytes."""
    return parse_form("/".join(parameters)) if parameters else BYTES


def _beside(form: Form) -> Form:
    if form is not BYTES and not isinstance(form, Pcm | Decoded | Unmeasured | VideoSpan):
        raise FormatError(f"no file beside a shard has the form {form}")
    return WHOLE if form is BYTES else Beside(form)


def _packed(codec: str, form: Form) -> Form:
    if form is not BYTES and not isinstance(form, Npy):
        raise FormatError(f"no compressed cell has the form {form}")
    packed: Form = _rare("touchfs.tables.arrow.packed").PackedCell(codec, form)
    return packed


def _damaged(text: str) -> FormatError:
    return FormatError(f"the form {text!r} of the catalog is damaged: index with --force")
