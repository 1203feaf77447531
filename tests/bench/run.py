"""`make bench`: runs the benchmarks, or those given as arguments ("small_files --busy"), one process each. Fails if one
missed something that it says is wanted. TOUCHFS_BEFORE=REF compares with touchfs of that commit, too.
"""

import subprocess
import sys
from pathlib import Path

from harness import machine

HERE = Path(__file__).parent
BENCHMARKS = (
    "mount_scale",
    "many_shards",
    "small_files",
    "small_files --busy",
    "kernel_images",
    "tar_shards",
    "catalogs",
    "arrow_cells",
    "parquet_cells",
    "parquet_workers",
    "tables",
    "overlays",
    "lance_cells",
    "slices",
    "video_segments",
    "touch_dataset",
    "loaders",
    "caches",
    "lance_caches",
    "nodes",
    "orders",
    "id_lists",
    "training",
    "control_files",
    "pictures",
    "fleet",
    "remount",
    "first_look",
    "explorer",
    "start_up",
    "workers",
    "json_lines",
    "hung_shards",
    "beside_steps",
    "backends",
    "interleaved",
    "remote",
    "remote_steps",
    "store_clients",
)

if __name__ == "__main__":
    print(machine())
    ended = []
    for name, *options in map(str.split, sys.argv[1:] or BENCHMARKS):
        ended.append(subprocess.run([sys.executable, HERE / f"{name}.py", *options]))
    sys.exit(any(each.returncode for each in ended))
