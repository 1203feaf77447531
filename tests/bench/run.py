"""`make bench`: runs the benchmarks, or those whose names are given, one process each. Fails if one
missed something that it says is wanted.
"""

import subprocess
import sys
from pathlib import Path

from harness import machine

HERE = Path(__file__).parent
BENCHMARKS = (
    "mount_scale",
    "read_handler",
    "small_files",
    "tar_shards",
    "arrow_cells",
    "parquet_cells",
    "tables",
    "lance_cells",
    "slices",
    "video_segments",
    "touch_dataset",
    "loaders",
    "caches",
    "lance_caches",
    "nodes",
    "control_files",
    "hung_shards",
    "backends",
    "interleaved",
)

if __name__ == "__main__":
    print(machine())
    ended = [subprocess.run([sys.executable, HERE / f"{name}.py"]) for name in sys.argv[1:] or BENCHMARKS]
    sys.exit(any(each.returncode for each in ended))
