"""Identify a process beyond its pid, which the system uses again."""

from __future__ import annotations

import os
from pathlib import Path


def system() -> tuple[str, str]:
    """Return ids of the current boot and pid namespace. Within these, pid and start time identify a process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return boot, os.readlink("/proc/self/ns/pid")


def start_time(pid: int) -> str:
    """Return when a process started, in clock ticks since boot, or "ended". A zombie counts as ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return "ended"
    return "ended" if fields[0] in "ZX" else fields[19]
