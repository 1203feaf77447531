"""The files of an iterator. All that is known of each is in `ITERATOR_FILES` and `ITERATOR_FILE_WORDS`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.core.token import from_json, to_json
from touchfs.iterators.spec import check_batch, parse_spec, stored_spec, with_batch
from touchfs.iterators.stored_positions import StoredPosition, Written
from touchfs.node.graph.state import resume


@dataclass(frozen=True, slots=True)
class IteratorFile:
    """How the text of a file is made, and what a value changes in the store if it can be written.
    `is_stored`: the text of an open is in the store, because a step makes it or it may be long.
    """

    read: Callable[[StoredPosition], bytes]
    write: Callable[[StoredPosition, Any], Written] | None = None
    mode: int = 0o444
    is_stored: bool = False


def _next(at: StoredPosition) -> bytes:
    graph = at.asked_graph()
    step = graph.step()
    at.connection.execute("UPDATE iterator SET base = ?, steps = ? WHERE id = ?", (*step.after, at.iterator))
    return at.output.lines(graph, step.tokens)


def _write_spec(at: StoredPosition, value: Any) -> Written:
    spec = parse_spec(value)
    at.output.check(spec.output)
    return (str(spec), *at.kept_position(spec))


def _write_batch(at: StoredPosition, value: Any) -> Written:
    spec = replace(at.graph().spec, batch=check_batch(value, "batch"))
    at.graph_at_position()  # raises where the position is lost
    return (with_batch(at.row()[0], spec), *at.kept_position(spec))


def _write_reset(at: StoredPosition, value: Any) -> Written:
    """1 is the very start, {"epoch": 3} the start of an epoch."""
    graph = at.graph()
    if value is True or (type(value) is int and value == 1):
        return graph.spec_text, None, 0
    epoch = value.get("epoch") if isinstance(value, dict) and len(value) == 1 else None
    if type(epoch) is not int or not 0 <= epoch < 1 << 31:
        raise UsageError('reset takes 1, or {"epoch": N}')
    if graph.spec.repeat:
        raise UsageError("reset: an iterator that repeats has no epochs to begin with: write 1, or a state to token")
    start = from_json(graph.start)
    resume(graph.root, start)  # so a mixture does not go on as from a state over other shards
    return graph.spec_text, to_json({**start, "state": graph.root.begin(epoch).state()}), 0


# In the order of their inode numbers: a new one goes to the end.
ITERATOR_FILES = {
    "spec": IteratorFile(lambda at: str(stored_spec(at.row()[0])).encode() + b"\n", _write_spec, 0o644, is_stored=True),
    "next": IteratorFile(_next, mode=0o600, is_stored=True),  # every user may look, only the owner may step
    "peek": IteratorFile(lambda at: at.output.lines(graph := at.asked_graph(), graph.peek())),
    "token": IteratorFile(
        lambda at: to_json({"kind": "state", **at.asked_graph().state()}).encode() + b"\n",
        StoredPosition.at_token,
        0o644,
        is_stored=True,
    ),
    "position": IteratorFile(lambda at: b"%d\n" % at.graph_at_position().progress()[0]),
    "len": IteratorFile(
        lambda at: b"endless\n" if (length := at.graph_at_position().progress()[1]) is None else b"%d\n" % length
    ),
    "epoch": IteratorFile(lambda at: b"%d\n" % at.graph_at_position().epoch()),
    "batch": IteratorFile(lambda at: b"%d\n" % at.graph().spec.batch, _write_batch, 0o644),
    "reset": IteratorFile(lambda at: b"", _write_reset, 0o644),
    "error": IteratorFile(lambda at: os.fsencode(at.row()[3])),
}

WRITABLE = {name: file.write for name, file in ITERATOR_FILES.items() if file.write is not None}

# What the README says of them.
ITERATOR_FILE_WORDS = """\
  spec      JSON: select ("samples", "segments", "interleaved", "merged/PLAN", or a path below one),
            where (an expression), shuffle (a seed or null), repeat (a number, or true for no end), rank, world_size,
            partition ("stride", "block"), tail ("keep", "drop", "pad"), mux (a list of select, where, shuffle, repeat,
            weight), batch, output ("path", "relpath", "key", "json"), extension (of the file whose path that is);
            every field is optional
  next      makes a step                  peek      the text that the next step will return
  position  samples taken in this epoch   len       samples in an epoch
  epoch     counted from 0                batch     samples per step; can be written
  token     the state, one line of JSON; write a state, or an item token (xattr user.touchfs.token of a file), or
            {"extend": true} to go on over a dataset that has grown
  reset     write 1 to start again, or {"epoch": 3} to start with an epoch
  error     the reason why the last write failed
"""
