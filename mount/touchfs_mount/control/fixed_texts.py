"""The texts of the control files that belong to no iterator, as `info`, `stats`, and the README of `iterators/`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version

from touchfs.core.control_characters import one_line
from touchfs.core.errors import UsageError
from touchfs.core.extras import DISTRIBUTION
from touchfs.core.location import Location
from touchfs.dataset import Dataset
from touchfs.iterators.iterator_files import ITERATOR_FILE_WORDS
from touchfs_mount.control.facts import ControlOptions, MountFacts
from touchfs_mount.numbers.cells import FAILURES, LATE_REPLIES, LOST_RACES, REQUESTS
from touchfs_mount.numbers.text import metrics_text

README = """\
Iterators over the dataset: exact positions in a shuffled and sharded pass over it, for any program.

  mkdir train                             create an iterator; rmdir train removes it
  echo '{"shuffle": 7}' > train/spec      define the samples and their order, and start from the beginning; a spec that
                                          changes at most batch, output and extension keeps the position
  cat train/next                          print the next sample, or the next `batch` samples, one per line
  cat train/token > checkpoint            save the state
  cat checkpoint > train/token            restore it: continue exactly from there

One open of `next` is one step, made at its first read; each sample is returned once, whichever process reads. At the
end of an epoch `next` is empty once; the step after that begins the next epoch. If reading `next` failed because the
whole daemon was killed, the step has usually been made: restore the last token that you saved.

"""

_VERSION = version(DISTRIBUTION)


class FixedTexts:
    """Makes these texts."""

    def __init__(self, dataset: Dataset, facts: MountFacts, options: ControlOptions) -> None:
        self._dataset = dataset
        self._facts = facts
        self._options = options

    def text(self, file: str) -> bytes:
        """The text of a file now."""
        facts = self._facts
        texts: dict[str, Callable[[], bytes]] = {
            "README": (README + ITERATOR_FILE_WORDS).encode,
            "errors": facts.errors.text,
            "info": self.info,
            "log-level": lambda: facts.level.name.encode() + b"\n",
            "stats": lambda: metrics_text(facts.numbers.totals(), facts.counts()),
        }
        return texts[file]()

    def write(self, file: str, value: bytes) -> None:
        """Set the log's level. Raises UsageError for a wrong one, and for another file."""
        if file != "log-level":
            raise UsageError(f"{file} cannot be written")
        self._facts.level.name = value.decode("utf-8", "replace").strip()

    def info(self) -> bytes:
        """The text of `info`."""
        dataset = self._dataset
        facts = self._facts
        info = {
            "touchfs": _VERSION,
            "source": Location.of(dataset.source).absolute.shown,
            **dataset.facts(),
            "by_key_listing": self._by_key_listing(),
            "mounted_at": facts.path,
            "pid": facts.pid,
            "since": datetime.fromtimestamp(facts.since, UTC).isoformat(timespec="seconds"),
            **asdict(facts.files),
            **facts.reloads.info(),
            "control": facts.control,
            "workers": facts.workers,
            "requests": facts.total(REQUESTS),
            "late_replies": facts.total(LATE_REPLIES),
            "lost_races": facts.total(LOST_RACES),
            "internal_errors": facts.total(FAILURES),
            "metrics": facts.metrics,
        }
        lines = json.dumps(info, indent=2, ensure_ascii=False).split("\n")
        return "\n".join([*map(one_line, lines), ""]).encode()

    def _by_key_listing(self) -> str:
        if not self._dataset.is_indexed:
            return "when all shards are indexed"
        if isinstance(self._dataset.keys, str):
            return "there is none"
        if self._options.list_by_key:
            return "all of them"
        source = shlex.quote(f"{Location.of(self._dataset.source).absolute.shown}:by-key")
        return f"none, though each is found by name: mount with --list-by-key, or run `touchfs ls {source}`"
