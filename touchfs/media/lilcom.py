"""Decompress matrices that lilcom compressed."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from touchfs.core.errors import FormatError, MissingExtraError

# The header has up to 15 dimensions of a few bytes each.
HEAD_SIZE = 128


def is_installed() -> bool:
    """Return whether the package lilcom is installed."""
    from importlib.util import find_spec

    return find_spec("lilcom") is not None


def shape(head: bytes) -> tuple[int, ...]:
    """Return the shape of a matrix from the first HEAD_SIZE of its compressed bytes, or all of them if fewer.

    Raises FormatError, and MissingExtraError without lilcom.
    """
    try:
        import lilcom
    except ImportError as error:
        raise _missing() from error
    try:
        return tuple(lilcom.get_shape(head))
    except ValueError as error:
        raise FormatError(f"lilcom cannot decompress it: {error}") from error


def decompress(data: bytes) -> NDArray[Any]:
    """Decompress a matrix of 32-bit floats. Raises FormatError, and MissingExtraError without lilcom."""
    try:
        import lilcom
    except ImportError as error:
        raise _missing() from error
    try:
        matrix: NDArray[Any] = lilcom.decompress(data)
    except (ValueError, RuntimeError, AssertionError) as error:
        raise FormatError(f"lilcom cannot decompress it: {error}") from error
    return matrix


def _missing() -> MissingExtraError:
    return MissingExtraError("lilcom is not installed: pip install lilcom")
