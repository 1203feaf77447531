"""MosaicML Streaming's datasets and its writer, in `.venv-mosaicml`, which `.ci/setup test` makes.

At their start its packages import transformers and torchvision, for parts that are not used here. So they do not start:
only modules in them do.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

PLACE = Path(__file__).parents[1] / ".venv-mosaicml"

if not (PLACE / ".ready").exists():
    raise RuntimeError(f"{PLACE} is missing: run .ci/setup test")
sys.path.append(str(PLACE))
for name in ("streaming", "streaming.base"):
    package = ModuleType(name)
    package.__path__ = [str(PLACE.joinpath(*name.split(".")))]
    sys.modules[name] = package

from streaming.base.batching import generate_work  # noqa: E402
from streaming.base.dataset import StreamingDataset  # noqa: E402
from streaming.base.format import MDSWriter  # noqa: E402
from streaming.base.shuffle import get_shuffle  # noqa: E402
from streaming.base.world import World  # noqa: E402

__all__ = ["MDSWriter", "StreamingDataset", "World", "generate_work", "get_shuffle"]
