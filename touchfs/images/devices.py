"""Files that an image maps its bytes to. The kernel takes them for devices."""

from __future__ import annotations

import os
from dataclasses import dataclass

from touchfs.core.errors import ChangedError, SourceError, map_os_errors
from touchfs.posix.beneath import open_beneath
from touchfs.posix.links import open_data
from touchfs.source.fingerprint import Fingerprint

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


@dataclass(frozen=True, slots=True)
class Device:
    """A file that has members, or that a list names: at a path, or at one relative to the audio root `beneath`."""

    path: str
    fingerprint: Fingerprint
    beneath: str = ""

    @property
    def full_path(self) -> str:
        return os.path.join(self.beneath, self.path)

    def open(self) -> tuple[int, os.stat_result]:
        """Open it: a descriptor and its status. Raises ChangedError if it is not what was indexed, NotFoundError or
        SourceError.
        """
        with map_os_errors(self.full_path):
            descriptor = open_beneath(self.beneath, self.path, _FLAGS) if self.beneath else open_data(self.path, _FLAGS)
            try:
                status = os.fstat(descriptor)
                if not self._is_unchanged(descriptor, Fingerprint.of(status)):
                    advice = "index the list again with --force" if self.beneath else "run the command again"
                    raise ChangedError(f"has changed since it was indexed: {advice}", path=self.full_path)
            except BaseException:
                os.close(descriptor)
                raise
        return descriptor, status

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of it. Raises as `open`."""
        descriptor, _ = self.open()
        try:
            with map_os_errors(self.full_path):
                data = os.pread(descriptor, length, offset)
        finally:
            os.close(descriptor)
        if len(data) < length:
            raise SourceError("cannot be read to its end", path=self.full_path)
        return data

    def _is_unchanged(self, descriptor: int, now: Fingerprint) -> bool:
        known = self.fingerprint
        if not known.matches(now):
            return False
        renewed = known.renewed(now, lambda offset, length: os.pread(descriptor, length, offset))
        return renewed.etag == known.etag
