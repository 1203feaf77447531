"""The cases of pjdfstest that concern a read-only file system: each call fails as it does on a read-only tmpfs.

pjdfstest has a test for each call and each error of its manual page. Here each call meets each kind of path, and the
kernel's own file system, with the same tree, says which error is right.
"""

import ctypes
import fcntl
import mmap
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mounts import Mount, error_of
from tars import write_tar
from wav_files import wav_of

pytestmark = pytest.mark.usefixtures("as_root")

TREE = {"d/a.txt": b"hello\n", "b.txt": b"b\n"}
SHARD = "shards/t"
FILE, DIRECTORY, LINK = f"{SHARD}/d/a.txt", f"{SHARD}/d", "manifests/hf/shards"
PATHS = {
    "file": FILE,
    "directory": DIRECTORY,
    "link": LINK,
    "root": "",
    "missing": f"{SHARD}/none",
    "missing parent": f"{SHARD}/none/x",
    "below a file": f"{FILE}/x",
    "file with a slash": f"{FILE}/",
    "longest name": f"{SHARD}/{'x' * 255}",
    "too long a name": f"{SHARD}/{'x' * 256}",
    "too long a path": "/".join(["x" * 200] * 25),
}
libc = ctypes.CDLL(None, use_errno=True)


def opens(flags: int) -> Callable[[Path], None]:
    return lambda path: os.close(os.open(path, flags, 0o644))


def may_write(path: Path) -> None:
    if libc.access(os.fsencode(path), os.W_OK):
        raise OSError(ctypes.get_errno(), "access")


# Calls on a path; those with two paths take `FILE` below the root as the other one.
CALLS: dict[str, Callable[[Path, Path], object]] = {
    **{
        f"open {name}": lambda path, file, flags=flags: opens(flags)(path)
        for name, flags in {
            "O_RDONLY": os.O_RDONLY,
            "O_WRONLY": os.O_WRONLY,
            "O_RDWR": os.O_RDWR,
            "O_CREAT": os.O_WRONLY | os.O_CREAT,
            "O_EXCL": os.O_RDONLY | os.O_CREAT | os.O_EXCL,
            "O_TRUNC": os.O_RDONLY | os.O_TRUNC,
            "O_DIRECTORY": os.O_RDONLY | os.O_DIRECTORY,
            "O_NOFOLLOW": os.O_RDONLY | os.O_NOFOLLOW,
            "O_TMPFILE": os.O_WRONLY | os.O_TMPFILE,
        }.items()
    },
    "mkdir": lambda path, file: os.mkdir(path),
    "rmdir": lambda path, file: os.rmdir(path),
    "mkfifo": lambda path, file: os.mkfifo(path),
    "mknod": lambda path, file: os.mknod(path, stat.S_IFREG | 0o644),
    "mknod of a device": lambda path, file: os.mknod(path, stat.S_IFCHR | 0o644, os.makedev(1, 3)),
    "symlink": lambda path, file: os.symlink("x", path),
    "link to": lambda path, file: os.link(file, path),
    "link from": lambda path, file: os.link(path, file.with_name("new")),
    "unlink": lambda path, file: os.unlink(path),
    "rename to": lambda path, file: os.rename(file, path),
    "rename from": lambda path, file: os.rename(path, file.with_name("new")),
    "rename from elsewhere": lambda path, file: os.rename(__file__, path),
    "rename to elsewhere": lambda path, file: os.rename(path, f"{__file__}.new"),
    "link elsewhere": lambda path, file: os.link(path, f"{__file__}.new"),
    "chmod": lambda path, file: os.chmod(path, 0o600),
    "chown": lambda path, file: os.chown(path, 1, 1),
    "lchown": lambda path, file: os.lchown(path, 1, 1),
    "truncate": lambda path, file: os.truncate(path, 0),
    "utimensat": lambda path, file: os.utime(path),
    "utimensat of a link": lambda path, file: os.utime(path, (1, 1), follow_symlinks=False),
    "setxattr": lambda path, file: os.setxattr(path, "user.x", b"x"),
    "removexattr": lambda path, file: os.removexattr(path, "user.x"),
    "access": lambda path, file: may_write(path),
    "stat": lambda path, file: os.stat(path),
    "lstat": lambda path, file: os.lstat(path),
    "readlink": lambda path, file: os.readlink(path),
    "list": lambda path, file: os.listdir(path),
    "statvfs": lambda path, file: os.statvfs(path),
}
# Calls on a file that is open for reading.
OPEN_CALLS: dict[str, Callable[[int], object]] = {
    "write": lambda handle: os.write(handle, b"x"),
    "pwrite": lambda handle: os.pwrite(handle, b"x", 0),
    "pread before the file": lambda handle: os.pread(handle, 1, -1),
    "ftruncate": lambda handle: os.ftruncate(handle, 0),
    "fallocate": lambda handle: os.posix_fallocate(handle, 0, 10),
    "fchmod": lambda handle: os.fchmod(handle, 0o600),
    "fchown": lambda handle: os.fchown(handle, 1, 1),
    "futimens": lambda handle: os.utime(handle),
    "fsetxattr": lambda handle: os.setxattr(handle, "user.x", b"x"),
    "fsync": os.fsync,
    "fdatasync": os.fdatasync,
    "map shared for writing": lambda handle: mmap.mmap(handle, 5),
    "flock": lambda handle: fcntl.flock(handle, fcntl.LOCK_EX),
    "lock for reading": lambda handle: fcntl.lockf(handle, fcntl.LOCK_SH),
    "lock for writing": lambda handle: fcntl.lockf(handle, fcntl.LOCK_EX),
    "list": os.listdir,
}


def answers(root: Path) -> dict[tuple[str, str], str]:
    file = root / FILE
    found = {
        (name, kind): error_of(call, Path(f"{root}/{path}") if kind != "file with a slash" else f"{root}/{path}", file)
        for name, call in CALLS.items()
        for kind, path in PATHS.items()
    }
    handle = os.open(file, os.O_RDONLY)
    try:
        found |= {(name, "open file"): error_of(call, handle) for name, call in OPEN_CALLS.items()}
    finally:
        os.close(handle)
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("posix")
    write_tar(place / "t.tar", TREE)
    # With a recording, so that there is the link.
    write_tar(place / "sound.tar", {"a.wav": wav_of(bytes(16))})
    return place


@pytest.fixture(scope="module")
def right(tmp_path_factory) -> Iterator[dict[tuple[str, str], str]]:
    """What the kernel's own file system answers."""
    place = tmp_path_factory.mktemp("right")
    subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    try:
        for name, data in TREE.items():
            (place / SHARD / name).parent.mkdir(parents=True, exist_ok=True)
            (place / SHARD / name).write_bytes(data)
        (place / LINK).parent.mkdir(parents=True)
        (place / LINK).symlink_to("../../shards")
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        yield answers(place)
    finally:
        subprocess.run(["umount", place], check=True)


def test_the_table_has_each_error(right):
    assert {
        "EROFS",
        "ENOENT",
        "ENOTDIR",
        "ENAMETOOLONG",
        "EISDIR",
        "EEXIST",
        "EXDEV",
        "EBADF",
        "EINVAL",
        "ELOOP",
    } <= set(right.values())
    assert right["open O_CREAT", "missing"] == right["chmod", "file"] == right["mkdir", "missing"] == "EROFS"


def everything(mounted: Mount) -> dict[Path, tuple[int, ...]]:
    found = {path: path.lstat() for path in (mounted.path, *mounted.path.rglob("*"))}
    return {path: (each.st_mode, each.st_uid, each.st_size, each.st_mtime_ns) for path, each in found.items()}


@pytest.mark.parametrize("options", [(), ("--control", "none")], ids=["control", "no-control"])
def test_a_mount_answers_as_the_kernel_and_stays_as_it_is(mount, source, right, options):
    mounted = mount(source, *options)
    before = everything(mounted)
    assert answers(mounted.path) == right
    assert everything(mounted) == before


ATTEMPTS = {
    "os.open(path, os.O_RDWR)": "EACCES",
    "os.truncate(path, 0)": "EACCES",
    "os.chmod(path, 0o777)": "EPERM",
    "os.chown(path, 65534, 65534)": "EPERM",
    "os.utime(path, (1, 1))": "EPERM",
    "os.unlink(path)": "EACCES",
    "os.mkdir(path + '.d')": "EACCES",
}


def test_another_user_gets_no_further(public):
    """Neither with the data nor with the files that its owner may write."""
    write_tar(public / "data" / "t.tar", TREE)
    user = {"user": 65534, "group": 65534, "extra_groups": [], "capture_output": True, "text": True, "cwd": "/"}
    mounted = Mount(public / "mnt", public / "data", "--allow-other")
    try:
        told = {}
        for path in (FILE, ".touchfs/info", ".touchfs/log-level"):
            code = f"import errno, os; path = {str(mounted.path / path)!r}\n"
            for attempt in ATTEMPTS:
                code += f"try: {attempt}\nexcept OSError as error: print(errno.errorcode[error.errno])\n"
            told[path] = subprocess.run(["/usr/bin/python3", "-c", code], check=True, **user).stdout.split()
        refused = list(ATTEMPTS.values())
        assert told == {FILE: ["EROFS"] * len(ATTEMPTS), ".touchfs/info": refused, ".touchfs/log-level": refused}
    finally:
        mounted.end()
