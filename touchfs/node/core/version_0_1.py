"""States and tokens of global shuffles over one leaf, as version 0.1 wrote them: those of a chain above the leaf.

Such a leaf goes through its own ordinals in that order now, so a state of the chain is one of the leaf, and a token
`(0, token)` of the chain is the leaf's.
"""

from __future__ import annotations

import re
from typing import Any

from touchfs.node.core.saved import Saved
from touchfs.token import Token

_CHAIN = "LazyIteratorChain"
_OVER_A_LEAF = re.compile(rf"{_CHAIN}\((\w+)\)")


def unchained_graph(graph: str) -> str:
    """The name of a graph without chains over a single leaf, so that a graph of today has that of version 0.1."""
    while (shorter := _OVER_A_LEAF.sub(r"\1", graph)) != graph:
        graph = shorter
    return graph


def unchained_state(saved: Saved) -> Saved:
    """The state of the leaf, where it is one of a global shuffle over nothing else."""
    fields = saved.fields()
    config = fields.get("config")
    leaf = _only_source(fields)
    while (source := _only_source(leaf)) is not None:
        leaf = source
    if leaf is None or not isinstance(config, dict) or not isinstance(leaf.get("config"), dict):
        return saved
    order = {name: config.get(name) for name in ("length", "seed")}
    return Saved({**fields, "node": leaf.get("node"), "config": {**leaf["config"], **order}}, saved.where)


def unchained_token(token: Token, depth: int) -> Token:
    """The leaf's token inside that of the chain; the leaf's own tokens are integers nested `depth` deep."""
    while isinstance(token, tuple) and len(token) == 2 and token[0] == 0 and _depth(token) > depth:
        token = token[1]
    return token


def _depth(token: Token) -> int:
    return 1 + _depth(token[-1]) if isinstance(token, tuple) and token else 0


def _only_source(described: dict[str, Any] | None) -> dict[str, Any] | None:
    """The description of the source of a global shuffle, if it has only one."""
    config = described.get("config") if described is not None and described.get("node") == _CHAIN else None
    if not isinstance(config, dict) or config.get("shuffle_iters") is not True:
        return None
    data = config.get("data")
    return data[0] if isinstance(data, list) and len(data) == 1 and isinstance(data[0], dict) else None
