"""The named iterators of a mount, through its control files."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from touchfs.core.errors import NotFoundError, SourceError, UsageError

_CONTROL = os.path.join(".touchfs", "iterators")


def is_mount(path: str) -> bool:
    """True if `path` is a mount with iterators. Raises UsageError for a mount without control files."""
    if os.path.isdir(os.path.join(path, _CONTROL)):
        return True
    with suppress(OSError):
        os.getxattr(path, "user.touchfs.info")
        raise UsageError("this mount has no control files: use the dataset's own path", path=path)
    return False


class MountedIterators:
    """The iterators of the mount at `mount`. What the daemon refuses is raised as the error that it wrote down."""

    def __init__(self, mount: str) -> None:
        self._mount = mount

    def names(self) -> list[str]:
        return [name for name in os.listdir(os.path.join(self._mount, _CONTROL)) if name != "README"]

    def create(self, name: str, spec: bytes) -> None:
        with self._errors(name):
            os.mkdir(self._path(name))
        try:
            self.write(name, "spec", spec)
        except BaseException:
            os.rmdir(self._path(name))
            raise

    def remove(self, name: str) -> None:
        with self._errors(name):
            os.rmdir(self._path(name))

    def read(self, name: str, file: str) -> bytes:
        with self._errors(name):
            return self._read(name, file)

    def write(self, name: str, file: str, text: bytes) -> None:
        with self._errors(name):
            descriptor = os.open(os.path.join(self._path(name), file), os.O_WRONLY)
            try:
                while text:
                    text = text[os.write(descriptor, text) :]
            finally:
                os.close(descriptor)

    def _read(self, name: str, file: str) -> bytes:
        with open(os.path.join(self._path(name), file), "rb", 0) as opened:
            return opened.readall()

    def _path(self, name: str) -> str:
        if "/" in name or name in ("", ".", "..", "README"):
            raise UsageError(f"an iterator cannot be called {name!r:.80}: choose a name of letters and digits")
        return os.path.join(self._mount, _CONTROL, name)

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Turn an OSError from the control files of an iterator into the error that describes its cause."""
        try:
            yield
        except FileNotFoundError as error:
            raise NotFoundError(f"there is no iterator {name!r}: `touchfs iterator list` shows all") from error
        except FileExistsError as error:
            raise UsageError(f"there is an iterator {name!r} already") from error
        except OSError as error:
            message = ""
            if error.errno == errno.EINVAL:
                with suppress(OSError):
                    message = self._read(name, "error").decode("utf-8", "replace").strip()
                raise UsageError(message or f"an iterator cannot be called {name!r:.80}") from error
            raise SourceError(error.strerror or str(error), path=self._path(name)) from error
