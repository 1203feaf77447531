"""Reading states and tokens of version 0.1, which put a chain above a leaf for each global shuffle over one leaf.

Now the leaf itself has the shuffled order. So a state of such a chain is converted into a state of the leaf, and a
token `(0, token)` of the chain into the leaf's token.
"""

from __future__ import annotations

import re
from typing import Any

from touchfs.node.core.saved import Saved
from touchfs.token import Token

_CHAIN = "LazyIteratorChain"
_OVER_A_LEAF = re.compile(rf"{_CHAIN}\((\w+)\)")


def unchained_graph(graph: str) -> str:
    """Remove chains over a single leaf from the description of a graph, so that both versions compare equal."""
    while (shorter := _OVER_A_LEAF.sub(r"\1", graph)) != graph:
        graph = shorter
    return graph


def unchained_state(saved: Saved) -> Saved:
    """Convert the state of a global shuffle over one leaf into the leaf's; return any other state unchanged."""
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
    """Return the leaf's token inside a chain's token. The leaf's own tokens are integers nested `depth` deep."""
    while isinstance(token, tuple) and len(token) == 2 and token[0] == 0 and _depth(token) > depth:
        token = token[1]
    return token


def _depth(token: Token) -> int:
    return 1 + _depth(token[-1]) if isinstance(token, tuple) and token else 0


def _only_source(description: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the description of the only source of a global shuffle, or None."""
    config = description.get("config") if description is not None and description.get("node") == _CHAIN else None
    if not isinstance(config, dict) or config.get("shuffle_iters") is not True:
        return None
    data = config.get("data")
    return data[0] if isinstance(data, list) and len(data) == 1 and isinstance(data[0], dict) else None
