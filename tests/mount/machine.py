"""A machine for tests of mount(8): a mount namespace where files of /sbin and /etc can be added. Nothing is written."""

import os
import subprocess
from pathlib import Path
from typing import Any

from command import INSTALLED

# A new namespace has all mounts of other tests, too. They could not end before it does, and one may hang.
FORGET_OTHERS = "umount --all --types fuse.touchfs --internal-only --no-canonicalize --lazy"
# $1 is a new directory, $2 the command. All that the script mounts ends with the namespace.
_SETUP = f"""
    set -e
    {FORGET_OTHERS}
    mount -t tmpfs none "$1"
    for name in /usr/sbin /etc; do
        layers="$1/layers$name"
        mkdir -p "$layers/upper" "$layers/work"
        mount -t overlay overlay -o "lowerdir=$name,upperdir=$layers/upper,workdir=$layers/work" "$name"
    done
    : > /etc/fstab
    ln -s "$2" /usr/sbin/touchfs
    touchfs() {{ "$TOUCHFS" "$@"; }}
    export TOUCHFS="$2"
    shift 2
    set +e
"""


def run_on_machine(place: Path, script: str, *arguments: Any, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a bash script there, with arguments. `touchfs` is in the system's PATH, and /etc/fstab is empty."""
    layers = place / "machine"
    layers.mkdir(exist_ok=True)
    shell = ["bash", "-c", _SETUP + script, "bash", os.fspath(layers), INSTALLED, *map(str, arguments)]
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", *shell],
        **{"capture_output": True, "text": True, "timeout": 60, "cwd": place, "check": False} | how,
    )
