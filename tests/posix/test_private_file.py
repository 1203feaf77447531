"""Files with secrets."""

import os
import threading
from pathlib import Path

import pytest

from touchfs.core.errors import UsageError
from touchfs.posix import private_file
from touchfs.posix.private_file import read_private


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"0123456789")
    secret.chmod(0o600)
    assert (read_private(str(secret), 100), read_private(str(secret), 4)) == (b"0123456789", b"0123")
    secret.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        read_private(str(secret), 100)


def test_a_program_may_write_it_into_a_pipe(tmp_path: Path) -> None:
    """As the shell's `<(command)`. Without a writer, nobody waits for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"secret",))
    writer.start()
    assert read_private(str(pipe), 100) == b"secret"
    writer.join()


def test_a_pipe_without_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_file, "_PIPE_SECONDS", 0.05)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(UsageError, match="nobody has written"):
        read_private(str(tmp_path / "pipe"), 100)
