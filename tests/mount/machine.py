"""A machine for tests of mount(8): a mount namespace where files of /sbin and /etc can be added. Nothing is written."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from command import INSTALLED
from own_mounts import FORGET_OTHERS

# $1 is a new directory, $2 the command. All that is mounted ends with the namespace.
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
    shift 2
    set +e
"""
# A process that has a fork server (`fork_server.py`) until its stdin ends. It says where the command is.
_SERVE = """
import sys
sys.path.append(sys.argv[1])
from command import TOUCHFS
print(TOUCHFS, flush=True)
sys.stdin.read()
"""


def run_on_machine(place: Path, script: str, *arguments: Any, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a bash script on a new one, with arguments. `touchfs` is in the system's PATH, and /etc/fstab is empty."""
    layers = place / "machine"
    layers.mkdir(exist_ok=True)
    shell = ["bash", "-c", _SETUP + script, "bash", layers, INSTALLED, *arguments]
    return _run(place, ["unshare", "--mount", "--propagation", "private", *shell], **how)


class Machine:
    """One for several scripts, on which the command is forked by a server, as TOUCHFS is elsewhere. The helper
    `mount.touchfs` is installed. What scripts mount they unmount.
    """

    def __init__(self, place: Path) -> None:
        serve = f"exec {sys.executable} -c '{_SERVE}' \"$1\""
        shell = ["bash", "-c", _SETUP + serve, "bash", place, INSTALLED, Path(__file__).parent.parent]
        self._server = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", *shell],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._server.stdout is not None
        touchfs = Path(self._server.stdout.readline().strip())
        touchfs.with_name("mount.touchfs").symlink_to(touchfs)
        self._setup = f"ln -sf {touchfs} {touchfs.with_name('mount.touchfs')} /usr/sbin; : > /etc/fstab; "

    def run(self, place: Path, script: str, *arguments: Any, **how: Any) -> subprocess.CompletedProcess[str]:
        """As `run_on_machine`."""
        inside = ["nsenter", f"--mount=/proc/{self._server.pid}/ns/mnt"]
        shell = ["bash", "-c", f'cd "$1"; shift; {self._setup}{script}', "bash", place, *arguments]
        return _run(place, [*inside, *shell], **how)

    def close(self) -> None:
        self._server.communicate()


def _run(place: Path, command: Sequence[Any], **how: Any) -> subprocess.CompletedProcess[str]:
    how = {"capture_output": True, "text": True, "timeout": 300, "cwd": place, "check": False} | how
    return subprocess.run([*map(str, command)], **how)
