"""Files that are put into another directory without their bytes being copied, where that is possible."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress


def link_or_copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Make `target` a hard link to a file, or a copy of it. A target that is there already stays.

    A copy gets its name when it is complete, so several may put the same file there at once. Raises OSError.
    """
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        return
    except OSError:  # another file system, one without hard links, or a file of somebody else
        directory, name = os.path.split(target)
        unfinished = os.path.join(directory, f".{name}.{os.urandom(8).hex()}")
        try:
            shutil.copyfile(source, unfinished)
            os.replace(unfinished, target)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(unfinished)
