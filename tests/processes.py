"""Processes, as /proc shows them."""

from pathlib import Path


def children(pid: int) -> list[int]:
    """Those that two reads agree on: the kernel may leave some out while another one ends (proc_pid_children(5))."""
    found, before = _children(pid), None
    while found != before:
        found, before = _children(pid), found
    return found


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def runs(pid: int) -> bool:
    """A process that has ended, and that nobody has waited for yet, does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
