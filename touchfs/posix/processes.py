"""What tells a process from a later one of the same number."""

from __future__ import annotations

import os
from pathlib import Path


def system() -> tuple[str, str]:
    """Which boot this is, and which pid namespace: where a pid and the time of its start name a process for good."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return boot, os.readlink("/proc/self/ns/pid")


def start_time(pid: int) -> str:
    """When a process began, in ticks since boot. One that only waits for its parent to hear of its end has ended."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return "ended"
    return "ended" if told[0] in "ZX" else told[19]
