"""Items of a dataset in any kind of shards: its samples. Lines of a JSONL may name files, as for `touchfs pack tar`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from touchfs.bulk.chosen import Choice
from touchfs.bulk.convert.input import Files, count, inputs_of, release, samples
from touchfs.bulk.tables.item import KEY, Item
from touchfs.bulk.tables.writers import TableSettings
from touchfs.core.errors import FormatError, NotFoundError, TouchfsError
from touchfs.core.extent import Memory
from touchfs.core.json_text import parse_json
from touchfs.core.location import Location
from touchfs.core.names import is_overlay_row
from touchfs.core.progress import Progress
from touchfs.dataset.sample import JSON_NAMES
from touchfs.features import Features, File, Value
from touchfs.form.compressed_content import read_plain, with_compressed
from touchfs.limits import too_large
from touchfs.registry.containers import GZIP_LINES, LINES, OTHER_LINES, single_named
from touchfs.registry.find import find
from touchfs.shard.options import Options
from touchfs.shard.sample import StoredSample
from touchfs.source.data import DATA

# Files whose members are columns, in order of preference.


class DatasetItems:
    """The samples of a dataset as items. `skip` gets the problems, and without it they are raised.

    A file of an item is called by its extension, or as `features` names its column.
    """

    def __init__(
        self,
        dataset: str,
        options: Options,
        leave_out: Collection[str] = (),
        skip: Callable[[str, TouchfsError], None] | None = None,
        choice: Choice | None = None,
    ) -> None:
        location = Location.parse(dataset)
        found = find(location, audio_root=options.limits.audio_root, split=options.split)
        self.shards = inputs_of(found.shards, choice)
        self._options = options
        self._leave_out = leave_out
        self._skip = skip
        self._columns: dict[str, str] = {}
        place = (
            partial(_remote_file, location.absolute.path, options.limits.decoded)
            if location.is_url
            else partial(_place, dataset)
        )
        self._place = place if single_named(dataset) in (LINES, GZIP_LINES, OTHER_LINES) else None

    def features(self, settings: TableSettings) -> Features:
        """Features that store everything: the key, and each file as it is. Visits all samples.

        A column is named after the extension of its files, as far as the kind of table allows.
        """
        extensions: dict[str, None] = {}
        for shard in self.shards:
            for found in samples(shard, self._options, self._leave_out, 0):
                if not isinstance(found, TouchfsError):
                    sample, files = found
                    extensions.update(dict.fromkeys(file.label for file in files.of(sample)))
        self._columns = settings.column_names(list(extensions), [KEY])
        return Features({KEY: Value("string"), **{name: File(each) for each, name in self._columns.items()}})

    def items(self, progress: Progress) -> Iterator[Item]:
        """The items in order. `progress` gets the bytes of the dataset that are done and their total.

        Raises FormatError for a damaged sample, unless it is skipped, and the errors of the dataset.
        """
        total = sum(shard.size for shard in self.shards)
        before = 0
        try:
            for shard in self.shards:
                done = 0
                for found in samples(shard, self._options, self._leave_out, 0):
                    if isinstance(found, TouchfsError):
                        self._problem(shard.path, found)
                        continue
                    yield from self._item(*found)
                    done += 1
                    progress(before + shard.size * done // max(count(shard, self._options), done), total)
                before += shard.size
                progress(before, total)
        finally:
            release()

    def _item(self, sample: StoredSample, files: Files) -> Iterator[Item]:
        where = f"sample {sample.ordinal} ({sample.key[:80]!r})"
        try:
            if sample.problem:
                raise FormatError(sample.problem)
            found = {file.label: file for file in files.of(sample)}
            names = (name for each in JSON_NAMES for name in with_compressed(each))
            extension = next((each for each in names if each in found), None)
            data = b"" if extension is None else files.read(found[extension])
            values = _object(read_plain(extension or "", Memory(bytes(data)), self._options.limits.json))
            for label in filter(is_overlay_row, found):
                values = {**_object(bytes(files.read(found[label]))), **values}
        except (FormatError, NotFoundError) as error:
            self._problem(where, error)
            return
        named = {self._columns.get(label, label): partial(files.read, file) for label, file in found.items()}
        yield Item(sample.key, values, named, self._place)

    def _problem(self, where: str, error: TouchfsError) -> None:
        if self._skip is None:
            raise FormatError(f"{where}: {error}; fix it, or skip it with --skip-bad") from error
        self._skip(where, error)


def _object(data: bytes) -> dict[str, Any]:
    """The members of a JSON object; none of other JSON, and of what is no JSON: it is a file like others."""
    try:
        parsed = parse_json(data) if data else {}
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _remote_file(jsonl: str, limit: int, path: str) -> bytes:
    """The bytes of the file that a line of a JSONL of another store names: below the JSONL's directory."""
    with closing(DATA.open_beneath(os.path.dirname(jsonl), path)) as file:
        if file.size > limit:
            raise FormatError(too_large(limit), path=file.path)
        return file.read(0, file.size)


def _place(jsonl: str, path: str) -> Path:
    """The file that a line of a JSONL names: below the current directory, or beside the JSONL."""
    here = Path(path)
    return here if here.is_file() else Path(os.path.dirname(os.path.abspath(jsonl)), path)
