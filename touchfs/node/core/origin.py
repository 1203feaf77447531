"""The attribute `_graph_origin`: the token of an item, attached to the item itself.

Inside a graph, nodes pass pairs of a token and an item (`touchfs.node.core.pair_node`), which works for any object. The
attribute gives users the token, and carries it through foreign nodes, whose `__iter__` yields only items. So it must
never be the wrong token, and must not leak into the user's data:

- The value is an instance of a subclass of the token's type that pickles as None: a token without its graph is
  meaningless.
- Equal integers may be one object, so an attribute needs an object of its own: integers, floats, strings, bytes,
  tuples, lists and dicts are replaced by an instance of a subclass that equals the plain value and pickles and dumps
  as it. An object that has no room for an attribute and cannot be subclassed (None, True, a NumPy array, an object
  with `__slots__`) cannot carry a token: that raises, so no token is lost silently.
- An object that already carries another token (kept in memory and yielded twice) is copied, shallowly, so that
  earlier references keep their token.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from touchfs.core.token import Token, read_token

T = TypeVar("T")


def _origin(plain: type) -> type:
    """Return a subclass of a token type whose instances are kept by copies of an item and dropped by pickles."""
    methods = {
        "__slots__": (),
        "__reduce_ex__": lambda self, protocol: (type(None), ()),
        "__copy__": lambda self: self,
        "__deepcopy__": lambda self, memo: self,
    }
    return type(f"{plain.__name__}_origin", (plain,), methods)


_ORIGINS: dict[type, Any] = {plain: _origin(plain) for plain in (int, str, tuple)}
_TOKENS: dict[type, Any] = {origin: plain for plain, origin in _ORIGINS.items()}
# None marks an item that cannot be rebuilt.
_ORIGINS[type(None)] = lambda token: None


class CannotCarryError(TypeError):
    """No token can be attached to this object."""


def _carrier(plain: type) -> type:
    return type(plain.__name__, (plain,), {"__reduce_ex__": lambda self, protocol: (plain, (plain(self),))})


_PLAIN: tuple[type, ...] = (int, float, str, bytes, tuple, list, dict)
_CARRIERS: dict[type, Any] = {plain: _carrier(plain) for plain in _PLAIN}
_CARRIERS |= {carrier: carrier for carrier in _CARRIERS.values()}


def attach_graph_origin(item: T, token: Token) -> T:
    """Attach a token to an item and return the item, or the subclass instance or copy that replaces it.

    Raises CannotCarryError if the object has no room for attributes.
    """
    carrier = _CARRIERS.get(type(item))
    origin = _ORIGINS.get(type(token))
    if origin is None:
        token = read_token(token)
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
    """Attach a token as `attach_graph_origin`, or return the item unchanged if the token is None."""
    return item if token is None else attach_graph_origin(item, token)


def with_token(item: Any, token: Token | None) -> Any:
    """Attach a token to an item, unless the token is None or the item cannot carry one."""
    if token is None:
        return item
    try:
        return attach_graph_origin(item, token)
    except CannotCarryError:
        return item


def get_graph_origin(item: Any) -> Token | None:
    """Return the token attached to an item, or None."""
    origin = getattr(item, "_graph_origin", None)
    plain = _TOKENS.get(type(origin))
    return origin if plain is None else plain(origin)
