"""Nothing can be changed through the mount, by root neither: every attempt is EROFS."""

import errno
import os
import shutil
import socket
import stat
import subprocess

import pytest
from mounts import Mount


def fails(number: int, function, *arguments, **keywords) -> bool:
    with pytest.raises(OSError) as caught:
        function(*arguments, **keywords)
    assert errno.errorcode[caught.value.errno or 0] == errno.errorcode[number]
    return True


CONTROL = ".touchfs/info"
FILES = ["shards/000000000/talks/monday.wav", "segments/000000000/talks/monday/0000.txt", CONTROL]
DIRECTORIES = ["", "shards", "shards/000000000/talks", ".touchfs"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "flags", ["O_WRONLY", "O_RDWR", "O_WRONLY|O_TRUNC", "O_RDONLY|O_TRUNC", "O_WRONLY|O_APPEND", "O_RDWR|O_CREAT"]
)
def test_no_file_opens_for_writing(mounted, name, flags):
    combined = 0
    for flag in flags.split("|"):
        combined |= getattr(os, flag)
    assert fails(errno.EROFS, os.open, mounted.path / name, combined)


@pytest.mark.parametrize("name", FILES)
def test_no_file_changes(mounted, name):
    path = mounted.path / name
    before = path.stat()
    assert fails(errno.EROFS, os.truncate, path, 0)
    assert fails(errno.EROFS, os.chmod, path, 0o777)
    assert fails(errno.EROFS, os.chown, path, 1, 1)
    assert fails(errno.EROFS, os.utime, path)
    assert fails(errno.EROFS, os.utime, path, (1, 1))
    assert fails(errno.EROFS, os.unlink, path)
    assert fails(errno.EROFS, os.rename, path, path.with_name("other"))
    assert fails(errno.EXDEV if name == CONTROL else errno.EROFS, os.rename, path, mounted.path / "other")
    assert fails(errno.EROFS, os.link, path, path.with_name("other"))
    assert fails(errno.EROFS, os.setxattr, path, "user.touchfs.key", b"x")
    assert fails(errno.EROFS, os.setxattr, path, "user.other", b"x")
    assert fails(errno.EROFS, os.removexattr, path, "user.touchfs.key")
    assert path.stat() == before


@pytest.mark.parametrize("name", DIRECTORIES)
def test_no_directory_changes(mounted, name):
    directory = mounted.path / name
    new = directory / "new"
    listed = os.listdir(directory)
    assert fails(errno.EROFS, os.open, new, os.O_CREAT | os.O_WRONLY)
    assert fails(errno.EROFS, os.mkdir, new)
    assert fails(errno.EROFS, os.mkfifo, new)
    assert fails(errno.EROFS, os.mknod, new, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    assert fails(errno.EROFS, os.symlink, "/", new)
    with socket.socket(socket.AF_UNIX) as listening:
        assert fails(errno.EROFS, listening.bind, os.fspath(new))
    assert fails(errno.EROFS, os.chmod, directory, 0o777)
    assert fails(errno.EROFS, os.utime, directory)
    assert fails(errno.EROFS, os.setxattr, directory, "user.other", b"x")
    if name:
        assert fails(errno.EROFS, os.rmdir, directory)
        assert fails(errno.EROFS, os.rename, directory, mounted.path / "other")
    assert not new.exists()
    assert os.listdir(directory) == listed


def test_modes_say_so(mounted):
    for path, mode in [
        ("", 0o755),
        ("shards", 0o755),
        ("shards/000000000/talks", 0o755),
        ("segments/000000000/talks/monday", 0o755),
        ("merged", 0o755),
        (".touchfs", 0o555),
        (".touchfs/info", 0o444),
        (FILES[0], 0o444),
    ]:
        assert stat.S_IMODE((mounted.path / path).stat().st_mode) == mode


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize(
    "copy",
    [
        'cp -a "$0" copy',
        pytest.param('cp -r "$0" copy', marks=pytest.mark.variant),
        pytest.param('mkdir copy; tar -C "$0" -cf - . | tar -C copy -xpf -', marks=pytest.mark.variant),
    ],
)
def test_a_copied_tree_can_be_removed_by_whoever_copied_it(public, speech, copy):
    shutil.copytree(speech, public / "shards")
    (public / "shards" / "data.list").unlink()
    mounted = Mount(public / "mnt", public / "shards", "--allow-other")
    try:
        home = public / "home"
        home.mkdir()
        os.chown(home, 65534, 65534)
        user = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": home, "check": True}
        for view in ("shards", "segments", "merged/max=30"):
            assert stat.S_IMODE((mounted.path / view).stat().st_mode) == 0o755
            subprocess.run(["sh", "-e", "-c", copy, mounted.path / view], **user)
            assert any(path.is_file() for path in (home / "copy").rglob("*"))
            subprocess.run(["rm", "-r", "copy"], **user)
    finally:
        mounted.end()


def test_a_mount_without_control_files_has_no_link_to_them(mount, speech):
    mounted = mount(speech, "--control", "none")
    assert os.statvfs(mounted.path).f_flag & os.ST_RDONLY
    assert ".touchfs" not in os.listdir(mounted.path)
    assert not os.path.lexists(mounted.path / ".touchfs")
    assert mounted.control() == []
    assert (mounted.path / FILES[0]).read_bytes()
    assert mounted.info()["internal_errors"] == 0
