"""The texts of the control files that belong to no iterator, as `info`, `stats`, and the README of `iterators/`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version

from touchfs.control_characters import one_line
from touchfs.dataset import Dataset
from touchfs.errors import UsageError
from touchfs.extras import DISTRIBUTION
from touchfs.posix.paths import absolute, shown
from touchfs_mount.control.facts import ControlOptions, MountFacts
from touchfs_mount.loop.loop import FAILURES, LATE_REPLIES, LOST_RACES, REQUESTS
from touchfs_mount.numbers.text import metrics_text

README = """\
Iterators over the dataset: exact positions in a shuffled and sharded pass over it, for any program.

  mkdir train                             create an iterator; rmdir train removes it
  echo '{"shuffle": 7}' > train/spec      define the samples and their order, and start from the beginning; a spec that
                                          changes nothing, or only batch and output, keeps the position
  cat train/next                          print the next sample, or the next `batch` samples, one per line
  cat train/token > checkpoint            save the state
  cat checkpoint > train/token            restore it: continue exactly from there

One open of `next` is one step, made at its first read; each sample is returned once, whichever process reads. At the
end of an epoch `next` is empty once; the step after that begins the next epoch. If reading `next` failed because the
whole daemon was killed, the step has usually been made: restore the last token that you saved.

  spec      JSON: select ("samples", "segments", "interleaved", "merged/PLAN", or a path below one),
            where (an expression), shuffle (a seed or null), repeat (a number, or true for no end), rank, world_size,
            partition ("stride", "block"), tail ("keep", "drop", "pad"), mux (a list of select, where, shuffle, repeat,
            weight), batch, output ("path", "relpath", "key", "json"); every field is optional;
            in what you read back, select has its older name, source
  next      makes a step                  peek      the text that the next step will return
  position  samples taken in this epoch   len       samples in an epoch
  epoch     counted from 0                batch     samples per step; can be written
  token     the state, one line of JSON; write a state, or an item token (xattr user.touchfs.token of a file)
  reset     write 1 to start again, or {"epoch": 3} to start with an epoch
  error     the reason why the last write failed
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
            "README": README.encode,
            "errors": facts.errors.text,
            "info": self._info,
            "log-level": lambda: facts.level.name.encode() + b"\n",
            "stats": lambda: metrics_text(facts.numbers.totals(), facts.counts()),
        }
        return texts[file]()

    def write(self, file: str, value: bytes) -> None:
        """Set the log's level. Raises UsageError for a wrong one, and for another file."""
        if file != "log-level":
            raise UsageError(f"{file} cannot be written")
        self._facts.level.name = value.decode("utf-8", "replace").strip()

    def _info(self) -> bytes:
        dataset = self._dataset
        facts = self._facts
        info = {
            "touchfs": _VERSION,
            "source": shown(absolute(dataset.source)),
            **dataset.facts(),
            "by_key_listing": self._by_key_listing(),
            "mounted_at": facts.path,
            "pid": facts.pid,
            "since": datetime.fromtimestamp(facts.since, UTC).isoformat(timespec="seconds"),
            **asdict(facts.files),
            **facts.reloads.info(),
            "loop": facts.loop,
            "workers": len(facts.counters),
            "requests": facts.total(REQUESTS),
            "late_replies": facts.total(LATE_REPLIES),
            "lost_races": facts.total(LOST_RACES),
            "internal_errors": facts.total(FAILURES),
            "metrics": facts.metrics,
        }
        lines = json.dumps(info, indent=2, ensure_ascii=False).split("\n")
        return "\n".join([*map(one_line, lines), ""]).encode()

    def _by_key_listing(self) -> str:
        if isinstance(self._dataset.keys, str):
            return "there is none"
        if self._options.list_by_key:
            return "all of them"
        source = shlex.quote(f"{shown(absolute(self._dataset.source))}:by-key")
        return f"none, though each is found by name: mount with --list-by-key, or run `touchfs ls {source}`"
