"""Which token rebuilds an item: written on the item, for whoever has only the item in hand.

Inside the graph nodes pass pairs of a token and an item (`touchfs.node.base`), which is sound for any object. The
attribute `_graph_origin` is the public face of that, and how a token crosses a node written elsewhere, whose
`__iter__` yields items alone. So it must never name the wrong token, nor be written into anybody's data:

- The attribute holds an `Origin`, which is pickled as None: a token means something only beside its graph.
- `5 is 5` everywhere, so an integer cannot be told apart by identity: integers, floats, strings, bytes, tuples, lists
  and dicts are handed out as instances of a subclass, equal to the plain value, and pickled and dumped as the plain
  value, each with its own attribute. What neither has room nor can be subclassed (None, True, a NumPy array, an
  object with `__slots__`) cannot carry a token: that is an error, never a token lost.
- An object that carries another token already (one kept in memory and yielded twice) is copied, shallowly, so that
  whoever held it keeps the token it came with.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from touchfs.token import Token

T = TypeVar("T")


class Origin:
    __slots__ = ("token",)

    def __init__(self, token: Token) -> None:
        self.token = token

    def __eq__(self, other: object) -> bool:
        return bool(self.token == (other.token if isinstance(other, Origin) else other))

    def __hash__(self) -> int:
        return hash(self.token)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()

    def __copy__(self) -> Origin:
        return self

    def __deepcopy__(self, memo: object) -> Origin:
        return self

    def __repr__(self) -> str:
        return repr(self.token)


class CannotCarryError(TypeError):
    """No token can be attached to this object."""


def _carrier(plain: type) -> type:
    return type(plain.__name__, (plain,), {"__reduce_ex__": lambda self, protocol: (plain, (plain(self),))})


_PLAIN: tuple[type, ...] = (int, float, str, bytes, tuple, list, dict)
_CARRIERS: dict[type, Any] = {plain: _carrier(plain) for plain in _PLAIN}
_CARRIERS |= {carrier: carrier for carrier in _CARRIERS.values()}


def attach_graph_origin(item: T, token: Token) -> T:
    """The item, or what stands for it, with the token that rebuilds it. Use what this returns."""
    carrier = _CARRIERS.get(type(item))
    try:
        if carrier is not None:
            item = carrier(item)
        elif getattr(item, "_graph_origin", None) not in (None, token):
            item = copy.copy(item)
        # Not setattr: frozen dataclasses refuse it, and classes that keep custom fields would save the token.
        object.__setattr__(item, "_graph_origin", Origin(token))
    except (AttributeError, TypeError):
        raise CannotCarryError(
            f"{type(item).__name__} objects cannot carry a token: put it into a dict or an object with attributes"
        ) from None
    return item


def maybe_attach_graph_origin(item: T, token: Token | None) -> T:
    return item if token is None else attach_graph_origin(item, token)


def get_graph_origin(item: Any) -> Token | None:
    """The token an item came with, or None."""
    origin = getattr(item, "_graph_origin", None)
    return origin.token if isinstance(origin, Origin) else origin
