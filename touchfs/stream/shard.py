"""A stream of a shard of any kind, opened as for indexing.

A cursor is an ordinal; then, if it once had other samples, `ShardReader.regrouped`, so that states of then are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import cast

from touchfs.containers.shar.files import is_shard
from touchfs.core.errors import FormatError, TouchfsError
from touchfs.core.extent import Content
from touchfs.core.names import shown_extension
from touchfs.dataset.sample import MadeSample, Sample
from touchfs.dataset.sample_file import MadeFile, no_path
from touchfs.registry.contents import FieldContents
from touchfs.registry.open import fingerprints, shard_at
from touchfs.shard.options import DEFAULT, Options
from touchfs.shard.sample import Field, StoredSamples
from touchfs.stream.base import VIEW, Cursor, StreamItem, cursor_numbers
from touchfs.stream.lines import first_line
from touchfs.stream.problems import ProblemLog, check_first_line
from touchfs.view import raw


class ShardStream:
    """The samples of one shard. `owner` is an object that must live as long as a sample may be read.

    `source` is the path that messages name if it is not `path` itself.
    """

    def __init__(
        self, path: str, name: str, options: Options = DEFAULT, owner: object = None, source: str | None = None
    ) -> None:
        self.path = path
        self.name = name
        self.source = path if source is None else source
        self._options = options
        self._owner = owner

    def sizes(self) -> list[tuple[str, int | None]]:
        return sorted((name, fingerprint.size) for name, fingerprint in fingerprints(self.path).items())

    def samples(self, cursor: Cursor) -> Iterator[StreamItem]:
        problems = ProblemLog(self.source)
        if is_shard(self.path):
            check_first_line(self.source, *first_line(self.path, self._options.limits.json))
        try:
            known = shard_at(self.path)
            opened = known.open(self._options)
        except TouchfsError as error:
            error.at(self.source)
            raise
        with closing(opened) as shard:
            samples = cast(StoredSamples, shard)
            behind = [shard.regrouped] if shard.regrouped else []
            if behind and len(cursor) == 1:
                problem = "the state is of an earlier touchfs, which counted other samples: start again"
                raise FormatError(problem, path=self.source)
            start = cursor_numbers(cursor, 1 + len(behind))[0]
            if start > len(samples):
                raise FormatError(f"has {len(samples)} samples, and {start} were taken of it", path=self.path)
            for problem in shard.problems:
                problems.add(problem)
            contents = FieldContents(known, self._options.limits)
            for ordinal in range(start, len(samples)):
                yield [ordinal + 1, *behind], partial(self._sample, samples, contents, ordinal, problems)
        problems.close()

    def _sample(self, samples: StoredSamples, contents: FieldContents, ordinal: int, problems: ProblemLog) -> Sample:
        stored = samples.sample(ordinal)
        if stored.problem:
            problems.add(f"sample {ordinal}: {stored.problem}")
        files = {
            shown_extension(file.extension): MadeFile(
                file.field.name, no_path, partial(self._content, contents, file.field)
            )
            for file in raw.files(stored)
        }
        return MadeSample(VIEW, self.name, ordinal, 0, stored.key, files)

    def _content(self, contents: FieldContents, field: Field) -> Content:
        """A method, so that the sample refers to the stream, and keeps its owner alive."""
        return contents.content(field)
