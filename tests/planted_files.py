"""Files that an attacker, user 65534, puts in the way of ours."""

import os
from pathlib import Path

ATTACKER = 65534


def symlink(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def dangling_symlink(path: Path, victim: Path) -> None:
    path.symlink_to(victim.with_name("nothing"))


def hardlink(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def pipe(path: Path, victim: Path) -> None:
    os.mkfifo(path)
