"""Optional packages that many rooms need: each is imported at first use, or an error says how to install it."""

from __future__ import annotations

from types import ModuleType

from touchfs.errors import MissingExtraError


def load_pyarrow() -> ModuleType:
    """Import pyarrow, which only tables need. Raises MissingExtraError."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError("Arrow and Parquet tables need pyarrow: pip install 'touchfs[arrow]'") from error
    module: ModuleType = pyarrow
    return module


def load_lance() -> ModuleType:
    """Import Lance, which only its datasets need. Raises MissingExtraError."""
    try:
        import lance
    except ImportError as error:
        raise MissingExtraError("Lance datasets need pylance: pip install 'touchfs[lance]'") from error
    if not hasattr(lance, "LanceDataset"):  # PyPI's `lance` is another project
        raise MissingExtraError("the package `lance` is not Lance: pip install 'touchfs[lance]', which has pylance")
    module: ModuleType = lance
    return module
