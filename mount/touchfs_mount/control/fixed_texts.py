"""The texts of the control files that belong to no iterator: `info`, `errors`, and the README of `iterators/`."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version

from touchfs.dataset import Dataset
from touchfs_mount.control.facts import ControlOptions, MountFacts
from touchfs_mount.loop.loop import CELLS, FAILURES, LATE_REPLIES, LOST_RACES, REQUESTS

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

  spec      JSON: source ("samples", "segments", "interleaved", "merged/PLAN", or a path below one),
            where (an expression), shuffle (a seed or null), repeat (a number, or true for no end), rank, world_size,
            partition ("stride", "block"), tail ("keep", "drop", "pad"), mux (a list of source, where, shuffle, repeat,
            weight), batch, output ("path", "relpath", "key", "json"); every field is optional
  next      makes a step                  peek      the text that the next step will return
  position  samples taken in this epoch   len       samples in an epoch
  epoch     counted from 0                batch     samples per step; can be written
  token     the state, one line of JSON; write a state, or an item token (xattr user.touchfs.token of a file)
  reset     write 1 to start again, or {"epoch": 3} to start with an epoch
  error     the reason why the last write failed
"""

_VERSION = version("touchfs")


class FixedTexts:
    """Makes these texts."""

    def __init__(self, dataset: Dataset, facts: MountFacts, options: ControlOptions) -> None:
        self._dataset = dataset
        self._facts = facts
        self._options = options

    def text(self, file: str) -> bytes:
        """The text of a file now."""
        return {"README": README.encode, "errors": self._facts.errors.text, "info": self._info}[file]()

    def _info(self) -> bytes:
        dataset = self._dataset
        totals = [sum(counters[cell] for counters in self._facts.counters) for cell in range(CELLS)]
        info = {
            "touchfs": _VERSION,
            "source": os.path.abspath(dataset.source),
            **dataset.facts(),
            "by_key_listing": self._by_key_listing(),
            "mounted_at": self._facts.path,
            "pid": self._facts.pid,
            "since": datetime.fromtimestamp(self._facts.since, UTC).isoformat(timespec="seconds"),
            **asdict(self._facts.files),
            **self._facts.reloads.info(),
            "loop": self._facts.loop,
            "workers": len(self._facts.counters),
            "requests": totals[REQUESTS],
            "late_replies": totals[LATE_REPLIES],
            "lost_races": totals[LOST_RACES],
            "internal_errors": totals[FAILURES],
        }
        return json.dumps(info, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    def _by_key_listing(self) -> str:
        if isinstance(self._dataset.keys, str):
            return "there is none"
        if self._options.list_by_key:
            return "all of them"
        source = shlex.quote(f"{os.path.abspath(self._dataset.source)}:by-key")
        return f"none, though each is found by name: mount with --list-by-key, or run `touchfs ls {source}`"
