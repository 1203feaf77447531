"""Opening below a directory: whatever is asked, no file outside is opened, and nothing but a file."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from touchfs.posix import beneath
from touchfs.posix.beneath import open_beneath

FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
LINKS_INSIDE = {"link.wav", "to_below/b.wav", "below/../a.wav"}


@pytest.fixture(params=["openat2", "by component"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "openat2":
        assert beneath._has_openat2()
    else:
        monkeypatch.setattr(beneath, "_has_openat2", lambda: False)
    return str(request.param)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret.wav").write_bytes(b"secret")
    root = tmp_path / "root"
    (root / "below").mkdir(parents=True)
    (root / "a.wav").write_bytes(b"a")
    (root / "below" / "b.wav").write_bytes(b"b")
    os.mkfifo(root / "pipe.wav")
    for name, target in {
        "link.wav": "a.wav",
        "to_below": "below",
        "out.wav": "../secret.wav",
        "out": "..",
        "absolute.wav": str(tmp_path / "secret.wav"),
        "here_absolutely.wav": str(root / "a.wav"),
        "loop.wav": "loop.wav",
        "fd.wav": f"/proc/self/fd/{os.open(tmp_path / 'secret.wav', os.O_RDONLY)}",
    }.items():
        (root / name).symlink_to(target)
    return root


def opened(root: Path, path: str) -> bytes:
    descriptor = open_beneath(str(root), path, FLAGS)
    try:
        return os.read(descriptor, 100)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("path", ["a.wav", "./a.wav", "below/b.wav", "below//b.wav", "./below/./b.wav"])
def test_files_below(root: Path, way: str, path: str) -> None:
    assert opened(root, path) == path[-5:-4].encode()


@pytest.mark.parametrize("path", sorted(LINKS_INSIDE))
def test_links_that_stay_below_are_followed_if_the_kernel_can_tell(
    root: Path, way: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "openat2":
        assert opened(root, path) in (b"a", b"b")
        monkeypatch.setenv("TOUCHFS_GUARD_LINKS", "1")  # as root mounts for others
        if ".." in path:
            return
    with pytest.raises(OSError) as error:
        opened(root, path)
    assert error.value.errno in (errno.EXDEV, errno.ENOTDIR)


@pytest.mark.parametrize(
    "path",
    [
        *("../secret.wav", "below/../../secret.wav", "out.wav", "out/secret.wav", "absolute.wav", "loop.wav", "fd.wav"),
        *("/etc/passwd", "//etc/passwd", "..", "/", "here_absolutely.wav", "/proc/self/root/etc/passwd"),
    ],
)
def test_what_leads_out_is_refused(root: Path, way: str, path: str) -> None:
    with pytest.raises(OSError) as error:
        opened(root, path)
    assert error.value.errno in (errno.EXDEV, errno.ENOTDIR)


@pytest.mark.parametrize("path", ["pipe.wav", "below", "."])
def test_only_regular_files_are_opened_and_a_pipe_does_not_wait(root: Path, way: str, path: str) -> None:
    with pytest.raises(OSError, match="is not a regular file"):
        opened(root, path)


@pytest.mark.parametrize("path", ["none.wav", "none/a.wav", "a.wav/b", "a\0.wav", "x" * 300, "x/" * 5000, ""])
def test_paths_that_lead_nowhere(root: Path, way: str, path: str) -> None:
    if path == "" and way != "openat2":
        return  # the directory itself, which is no file either
    with pytest.raises(OSError) as error:
        opened(root, path)
    assert error.value.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


def test_a_directory_that_is_exchanged_for_a_link_meanwhile_does_not_lead_out(root: Path, way: str) -> None:
    outside, inside = root.parent / "outside", root / "swapped"
    outside.mkdir()
    (outside / "b.wav").write_bytes(b"secret")
    ended = threading.Event()

    def exchange() -> None:
        while not ended.is_set():
            inside.mkdir()
            (inside / "b.wav").write_bytes(b"b")
            inside.rename(root / "old")
            inside.symlink_to("../outside")
            (root / "old" / "b.wav").unlink()
            (root / "old").rmdir()
            inside.unlink()

    thread = threading.Thread(target=exchange)
    thread.start()
    found = set()
    try:
        for _ in range(3000):
            try:
                found.add(opened(root, "swapped/b.wav"))
            except OSError as error:
                found.add(error.errno)
    finally:
        ended.set()
        thread.join()
    assert b"secret" not in found
    assert errno.EXDEV in found or errno.ENOTDIR in found
