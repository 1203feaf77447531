"""Where the state of a source is kept."""

from __future__ import annotations

import hashlib
import os

import platformdirs


def state_directory(state_dir: str | None = None) -> str:
    """The directory for the states and logs of all mounts: the one named, or the user's."""
    return os.path.abspath(state_dir or platformdirs.user_state_dir("touchfs"))


def state_path(source: str, suffix: str, state_dir: str | None = None) -> str:
    """A file that is kept for a source. Absolute, as a daemon leaves the directory it was started in."""
    named = os.path.realpath(source).encode(errors="surrogateescape")
    return os.path.join(state_directory(state_dir), hashlib.blake2b(named, digest_size=16).hexdigest() + suffix)
