"""Which token rebuilds an item: written on the item, for whoever has only the item in hand.

Inside the graph nodes pass pairs of a token and an item (`touchfs.node.core.base`), which is sound for any object. The
attribute `_graph_origin` is the public face of that, and how a token crosses a node written elsewhere, whose
`__iter__` yields items alone. So it must never name the wrong token, nor be written into anybody's data:

- The attribute is a token of a subclass, which is pickled as None: a token means something only beside its graph.
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

from touchfs.token import Token, normalize_graph_token

T = TypeVar("T")


def _origin(plain: type) -> type:
    """Tokens of a type, that copies of an item keep and pickles of it do not."""
    methods = {
        "__slots__": (),
        "__reduce_ex__": lambda self, protocol: (type(None), ()),
        "__copy__": lambda self: self,
        "__deepcopy__": lambda self, memo: self,
    }
    return type(f"{plain.__name__}_origin", (plain,), methods)


_ORIGINS: dict[type, Any] = {plain: _origin(plain) for plain in (int, str, tuple)}
_TOKENS: dict[type, Any] = {origin: plain for plain, origin in _ORIGINS.items()}
# An item that nothing can rebuild may be marked as such.
_ORIGINS[type(None)] = lambda token: None


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
    origin = _ORIGINS.get(type(token))
    if origin is None:
        token = normalize_graph_token(token)
        origin = _ORIGINS[type(token)]
    try:
        if carrier is not None:
            item = carrier(item)
        elif getattr(item, "_graph_origin", None) not in (None, token):
            item = copy.copy(item)
        # Not setattr: frozen dataclasses refuse it, and classes that keep custom fields would save the token.
        object.__setattr__(item, "_graph_origin", origin(token))
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
    plain = _TOKENS.get(type(origin))
    return origin if plain is None else plain(origin)
