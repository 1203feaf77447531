"""Matrices that lilcom compressed."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from touchfs.errors import FormatError, MissingExtraError


def is_installed() -> bool:
    from importlib.util import find_spec

    return find_spec("lilcom") is not None


def decompress(data: bytes) -> NDArray[Any]:
    try:
        import lilcom
    except ImportError as error:
        raise MissingExtraError("lilcom is not installed: pip install lilcom") from error
    try:
        matrix: NDArray[Any] = lilcom.decompress(data)
    except (ValueError, RuntimeError, AssertionError) as error:
        raise FormatError(f"lilcom cannot decompress it: {error}") from error
    return matrix
