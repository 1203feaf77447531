"""The base class of nodes over several sources. Their tokens are `(source_index, source_token)`."""

from __future__ import annotations

from typing import Any

from touchfs.core.token import Token
from touchfs.node.core.foreign import first_obstacle, is_indexed, maker
from touchfs.node.core.iterator_node import kind_of, resolve_iterator_source, supports_graph_restore
from touchfs.node.core.pair_node import PairNode


class SourcesNode(PairNode):
    """A node over several sources, which promises only what all of them promise."""

    def __init__(self, *sources: Any) -> None:
        self.sources = [resolve_iterator_source(source) for source in sources]

    def obstacle(self) -> str | None:
        return first_obstacle(self.sources)

    @property
    def is_indexed(self) -> bool:
        return all(map(is_indexed, self.sources))

    @property
    def has_constant_time_access(self) -> bool:
        return all(map(supports_graph_restore, self.sources))

    def parts_of(self, token: Token) -> tuple[int, Token]:
        """Return the source index and the source's token. Raises TypeError or IndexError for any other token."""
        if not isinstance(token, tuple) or len(token) != 2 or type(token[0]) is not int:
            raise TypeError(f"{kind_of(self)} expects tokens shaped like (source_index, source_token), not {token!r}")
        if not 0 <= token[0] < len(self.sources):
            raise IndexError(f"source {token[0]} is out of range: {kind_of(self)} has {len(self.sources)}")
        return token[0], token[1]

    def make(self, token: Token) -> Any:
        index, token = self.parts_of(token)
        return maker(self.sources[index])(token)
