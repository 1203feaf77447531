"""Our distribution, its optional packages and how to install them; those that many rooms import at first use."""

from __future__ import annotations

import sys
from types import ModuleType

from touchfs.core.errors import MissingExtraError

# Our name in package indexes. `touchfs` is the name of another project there, whose package has our import name.
DISTRIBUTION = "touchfs-shards"


def install_hint(extra: str) -> str:
    """The command that installs what an extra needs, for messages."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def load_pyarrow() -> ModuleType:
    """Import pyarrow, which only tables need. Raises MissingExtraError."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError(f"Arrow and Parquet tables need pyarrow: {install_hint('arrow')}") from error
    module: ModuleType = pyarrow
    return module


def load_lance() -> ModuleType:
    """Import Lance, which only its datasets need. Raises MissingExtraError."""
    try:
        import lance
    except ImportError as error:
        raise MissingExtraError(f"Lance datasets need pylance: {install_hint('lance')}") from error
    if not hasattr(lance, "LanceDataset"):  # PyPI's `lance` is another project
        raise MissingExtraError(f"the package `lance` is not Lance: {install_hint('lance')}, which has pylance")
    module: ModuleType = lance
    return module


class _NoPandas:
    """A finder of modules that does not find pandas, and leaves all others to the next one."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("processes of touchfs leave pandas out", name=name)


def leave_out_pandas() -> None:
    """Have a process of ours not find pandas, which pyarrow imports at its first array to see whether the values are of
    it: that takes 0.4 s, and there are none. A user's own program is left alone.
    """
    if _NoPandas not in sys.meta_path:
        sys.meta_path.insert(0, _NoPandas)
