"""Mounts of images, which the kernel serves: what they show is what a mount by FUSE shows.

On a machine whose kernel has no EROFS with files as devices, or where we are not root, each test fails with the reason.
"""

import ctypes
import json
import mmap
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from command import INSTALLED, TOUCHFS
from damage import flip_byte
from image_trees import random_tar
from mounts import Mount, is_mounted, read_anew, reader_of, touchfs
from tars import write_tar
from touchfs_mount.mounting.status import list_mounts
from touchfs_mount.mountpoints.kernel_check import check_kernel

from touchfs import open as open_samples
from touchfs.indexing.place import index_directory

NOBODY = 65534
SIZES = (0, 1, 511, 512, 513, 4096, 4097, 20_000, 65_537, 200_001)
DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(autouse=True)
def _kernel(as_root, tmp_path):
    check_kernel(str(tmp_path))  # raises with the reason


@pytest.fixture
def data(tmp_path) -> Path:
    (tmp_path / "data").mkdir()
    for number in range(2):
        random_tar(tmp_path / "data" / f"{number}.tar", number, 60)
    return tmp_path / "data"


@contextmanager
def by_kernel(source, path: Path, *options) -> Iterator[Path]:
    done = touchfs("mount", "--kernel", *options, source, path)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert f"is mounted at {path} by the kernel (" in done.stdout
    try:
        yield path
    finally:
        if is_mounted(path):
            subprocess.run(["umount", "-l", path], check=True)


@contextmanager
def by_daemon(source, path: Path, *options) -> Iterator[Path]:
    mount = Mount(path, source, *options)
    try:
        yield path
    finally:
        mount.end()


def shown(root: Path, *views: str) -> dict[str, tuple]:
    """All entries below views with type, mode, owner, time in seconds, and for files and links what they hold."""
    found = {}
    for view in views:
        for directory, directories, names in os.walk(root / view):
            for name in (*directories, *names):
                path = Path(directory, name)
                status = os.lstat(path)
                kind = stat.S_IFMT(status.st_mode)
                held = None
                if stat.S_ISREG(kind):
                    held = status.st_size, path.read_bytes()
                elif stat.S_ISLNK(kind):
                    held = os.readlink(path)
                facts = status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns // 10**9, held
                found[os.fsdecode(path.relative_to(root))] = facts
    return found


def recordings(place: Path, kind: str, sizes: Collection[int] = SIZES) -> tuple[Path, Path]:
    """The directory of recordings of these sizes, and a list of them."""
    audio, dice = place / "audio", random.Random(3)
    audio.mkdir()
    for size in sizes:
        (audio / f"{size}.mp3").write_bytes(dice.randbytes(size))
    if kind == "kaldi":
        (place / "kaldi").mkdir()
        (place / "kaldi/wav.scp").write_text("".join(f"k{size} {audio}/{size}.mp3\n" for size in sorted(sizes)))
        return audio, place / "kaldi"
    lines = [{"audio_filepath": f"{size}.mp3", "duration": 1, "text": "x"} for size in sizes]
    (place / "nemo.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return audio, place / "nemo.jsonl"


def seeds():
    return [0, *(pytest.param(seed, marks=pytest.mark.variant) for seed in range(1, 6))]


def assert_the_kernel_shows_what_fuse_shows(place: Path, seed: int, tars: int, members: int) -> None:
    dice = random.Random(seed)
    for number in range(tars):
        path = place / "data" / dice.choice(["train", "test"]) / f"{number}.tar"
        path.parent.mkdir(parents=True, exist_ok=True)
        random_tar(path, 10_000 * seed + number, members)
        os.utime(path, ns=(0, dice.randrange(2**31) * 10**9 + 5))
        os.chmod(path, dice.choice([0o600, 0o640, 0o644]))
        os.chown(path, dice.choice([0, 1000, 10**6]), dice.choice([0, 7, 10**6]))
    options = ("--list-by-key", *dice.choice([(), ("--allow-other",), ("--uid", "70000", "--umask", "027")]))
    with by_daemon(place / "data", place / "fuse", *options) as fuse:
        expected = shown(fuse, "shards", "by-key")
    assert len(expected) > 1.5 * tars * members
    with by_kernel(place / "data", place / "kernel", *options) as kernel:
        assert sorted(os.listdir(kernel)) == ["by-key", "shards"]
        assert shown(kernel, "shards", "by-key") == expected


@pytest.mark.parametrize("seed", seeds())
def test_the_kernel_shows_what_fuse_shows(tmp_path, seed):
    assert_the_kernel_shows_what_fuse_shows(tmp_path, seed, tars=5, members=200)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6, 12))
def test_a_thousand_random_tars(tmp_path, seed):
    assert_the_kernel_shows_what_fuse_shows(tmp_path, seed, tars=1000, members=8)


@pytest.mark.parametrize("name", ["kept/dataset/words.tar", "kept/shar", "interleaved", "packed"])
def test_data_of_the_tests(tmp_path, name):
    """What is not in the image is counted."""
    source = DATA / name
    if name == "packed":
        source = tmp_path / "shar"
        assert touchfs("pack", "shar", DATA / "speech" / "speech.jsonl", source).returncode == 0
    if name == "interleaved":  # beside its tars are other tables
        source = tmp_path / "interleaved"
        source.mkdir()
        for tar in (DATA / name).glob("*.tar"):
            shutil.copy(tar, source)
    with by_daemon(source, tmp_path / "fuse") as fuse:
        expected = shown(fuse, "shards")
    done = touchfs("mount", "--kernel", source, tmp_path / "kernel")
    try:
        found = shown(tmp_path / "kernel", "shards")
    finally:
        subprocess.run(["umount", "-l", tmp_path / "kernel"], check=True)
    assert found.items() <= expected.items()
    told = done.stdout.partition("; left out: ")[2]
    assert sum(map(int, re.findall(r"(\d+) files? ", told))) == len(expected) - len(found)
    if name == "packed":
        assert sum(entry.endswith((".wav", ".flac")) for entry in found) == 10


@pytest.mark.usefixtures("has_libraries")
def test_overlays_are_shown(tmp_path, data):
    """With values of all sizes; a changed overlay is shown by the next mount."""
    keys, overlay = [*dict.fromkeys(open_samples(str(data)).keys())], tmp_path / "o.jsonl"
    options = ("--overlay", overlay, "--list-by-key")
    for letter in "xy":
        rows = [{"key": key, "n": i, "long": letter * SIZES[i % len(SIZES)]} for i, key in enumerate(keys)]
        overlay.write_text("".join(json.dumps(row) + "\n" for row in rows))
        with by_daemon(data, tmp_path / "fuse", *options) as fuse:
            expected = shown(fuse, "shards", "by-key")
        assert sum(name.endswith(".long.txt") for name in expected) > len(keys)
        with by_kernel(data, tmp_path / "kernel", *options) as kernel:
            assert shown(kernel, "shards", "by-key") == expected


def assert_recordings_are_read_to_their_end(place: Path, kind: str, sizes: Collection[int]) -> None:
    audio, named = recordings(place, kind, sizes)
    views = ("shards", "by-key") if kind == "kaldi" else ("shards",)  # lines of NeMo have no keys
    options = ("--audio-root", audio, *["--list-by-key"] * ("by-key" in views))
    with by_daemon(named, place / "fuse", *options) as fuse:
        expected = {name: facts for name, facts in shown(fuse, *views).items() if ".json" not in name}
    files = {name: held[1] for name, (*_, held) in expected.items() if isinstance(held, tuple)}
    assert sorted(map(len, files.values())) == sorted(sizes)
    with by_kernel(named, place / "kernel", *options) as kernel:
        for name, held in files.items():  # the ends first
            with open(kernel / name, "rb") as file:
                assert os.pread(file.fileno(), 700, max(len(held) - 600, 0)) == held[-600:]
        assert shown(kernel, *views) == expected


@pytest.mark.parametrize("kind", ["kaldi", pytest.param("nemo", marks=pytest.mark.variant)])
def test_recordings_are_read_to_their_end(tmp_path, kind):
    assert_recordings_are_read_to_their_end(tmp_path, kind, SIZES)


@pytest.mark.soak
def test_a_thousand_random_recordings(tmp_path):
    dice = random.Random(7)
    sizes = {int(2 ** dice.uniform(0, 19)) for _ in range(1100)}
    assert_recordings_are_read_to_their_end(tmp_path, "kaldi", sizes)


@pytest.mark.parametrize("how", ["cut", "changed before"])
def test_a_recording_that_changes_is_told(tmp_path, how):
    audio, named = recordings(tmp_path, "nemo")
    changed = audio / "200001.mp3"
    with by_kernel(named, tmp_path / "mnt", "--audio-root", audio) as mounted:
        shown_file = next(mounted.glob("shards/*/*9.mp3"))
        whole = changed.read_bytes()
        if how == "cut":
            os.truncate(changed, 5000)
            with pytest.raises(OSError, match="Input/output error"):
                read_anew(shown_file)
        else:
            changed.rename(tmp_path / "old.mp3")
            changed.write_bytes(b"c" * 200_001)
            assert read_anew(shown_file) == whole, "the kernel has the file itself"
        done = touchfs("status", mounted)
        assert (done.returncode, f"  changed     {changed}\n" in done.stdout) == (1, True)
    if how == "changed before":
        said = refused(named, tmp_path / "other", "--audio-root", audio)
        assert "200001.mp3: has changed since it was indexed: index the list again with --force" in said
        assert touchfs("index", "--force", "--audio-root", audio, named).returncode == 0
        with by_kernel(named, tmp_path / "mnt", "--audio-root", audio) as mounted:
            assert read_anew(next(mounted.glob("shards/*/*9.mp3"))) == b"c" * 200_001


def test_where_no_process_can_look_at_its_tars_it_is_not_asked(tmp_path, data, monkeypatch):
    """The status of the other mounts is told nevertheless."""
    with by_kernel(data, tmp_path / "mnt") as mounted:
        (before,) = list_mounts(str(mounted))
        monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
        (told,) = list_mounts(str(mounted))
    assert (before.health, told.health, told.image) == ("answers", "not asked", before.image)


def test_many_readers(tmp_path, data):
    audio, named = recordings(tmp_path, "nemo")
    named.rename(data / named.name)
    with by_daemon(data, tmp_path / "fuse", "--audio-root", audio) as fuse:
        files = {name: facts[-1] for name, facts in shown(fuse, "shards").items() if stat.S_ISREG(facts[0])}
    expected = {name: held for name, held in files.items() if not re.search("nemo/.*json", name)}
    names = list(expected)

    def read(seed: int) -> list[str]:
        chosen = random.Random(seed).choices(names, k=60)
        return [name for name in chosen if read_anew(tmp_path / "kernel" / name) != expected[name][1]]

    with by_kernel(data, tmp_path / "kernel", "--audio-root", audio), ThreadPoolExecutor(32) as pool:
        assert list(pool.map(read, range(32))) == [[]] * 32


def test_only_the_owner_may_look_unless_others_are_allowed(tmp_path, data):
    tmp_path.chmod(0o755)
    for above in tmp_path.parents:
        if above.stat().st_uid == os.geteuid() and above != Path("/"):
            above.chmod(above.stat().st_mode | 0o011)
    look = ["setpriv", f"--reuid={NOBODY}", "--clear-groups", "ls", tmp_path / "mnt" / "shards"]
    with by_kernel(data, tmp_path / "mnt") as mounted:
        assert stat.S_IMODE(mounted.stat().st_mode) == 0o700
        assert subprocess.run(look, capture_output=True, check=False).returncode
    with by_kernel(data, tmp_path / "mnt", "--allow-other"):
        assert subprocess.run(look, capture_output=True, check=False).stdout.split() == [b"0", b"1"]


def test_mmap_shows_the_zeros_of_the_tar_behind_a_file(tmp_path):
    write_tar(tmp_path / "data/a.tar", {"a.txt": b"a" * 5000, "b.txt": b"b" * 512})
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, *[ctypes.c_size_t] * 5]
    with by_kernel(tmp_path / "data", tmp_path / "mnt") as mounted, open(mounted / "shards/a/a.txt", "rb") as file:
        # Python's own mmap is never longer than the file.
        address = libc.mmap(None, 8192, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        try:
            assert ctypes.string_at(address, 8192) == b"a" * 5000 + bytes(3192)
        finally:
            libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(8192))


def test_status_umount_and_doctor_know_it(tmp_path, data):
    with by_kernel(data, tmp_path / "mnt") as mounted:
        (told,) = json.loads(touchfs("status", "--json", mounted).stdout)
        assert (told["mountpoint"], told["source"], told["health"]) == (str(mounted), str(data), "answers")
        assert (told["info"]["shards"], told["info"]["changed"]) == (2, [])
        assert Path(told["image"]).parent == Path(index_directory())
        assert f"\n  image       {told['image']}\n" in touchfs("status", mounted).stdout
        assert "has no daemon" in touchfs("reload", mounted).stderr
        file = next((mounted / "shards/0").glob("*.*"))
        with reader_of(file) as reader:
            busy = touchfs("umount", mounted)
            assert (busy.returncode, is_mounted(mounted)) == (1, True)
            assert f"({reader.pid})" in busy.stderr
        done = touchfs("umount", mounted)
        assert (done.returncode, done.stderr, mounted.exists()) == (0, "", False), "it was made for the mount"
    with by_kernel(data, tmp_path / "mnt") as mounted:
        assert touchfs("umount", "--lazy", mounted).returncode == 0
        assert not is_mounted(mounted)
    assert any("mount --kernel" in line and line.startswith("ok") for line in touchfs("doctor").stdout.splitlines())


def test_another_mount_with_the_number_of_one_that_ended_is_not_ours(tmp_path, data):
    with by_kernel(data, tmp_path / "mnt") as mounted:
        subprocess.run(["umount", mounted], check=True)
        assert "touchfs is not mounted here" in touchfs("status", mounted).stderr
    with by_kernel(data, tmp_path / "mnt") as mounted:
        assert touchfs("status", mounted).returncode == 0


@pytest.mark.parametrize("how", ["cut", "overwritten", "replaced", "removed"])
def test_a_tar_that_changes_under_the_mount_is_told(tmp_path, how):
    path = write_tar(tmp_path / "data/a.tar", {"a.txt": b"a" * 600, "b.txt": b"b" * 9000})
    with by_kernel(tmp_path / "data", tmp_path / "mnt") as mounted:
        if how == "cut":
            os.truncate(path, 512 + 1024 + 512 + 4000)
            with pytest.raises(OSError, match="Input/output error"):
                read_anew(mounted / "shards/a/b.txt")
            assert read_anew(mounted / "shards/a/a.txt") == b"a" * 600
        elif how == "overwritten":
            path.write_bytes(path.read_bytes().replace(b"b", b"c"))
        else:
            path.rename(tmp_path / "old.tar")
            if how == "replaced":
                write_tar(path, {"c.txt": b"c"})
            assert read_anew(mounted / "shards/a/b.txt") == b"b" * 9000, "the kernel has the file itself"
        done = touchfs("status", mounted)
        assert done.returncode == 1
        assert f"  changed     {path}\n" in done.stdout
        if how == "removed":  # which takes a fifth of a second for each
            assert any(line.startswith(f"bad   {mounted}") for line in touchfs("doctor").stdout.splitlines())


def test_an_image_of_other_versions_of_the_data_is_not_used(tmp_path):
    path = write_tar(tmp_path / "data/a.tar", {"a.txt": b"a" * 600})
    with by_kernel(tmp_path / "data", tmp_path / "mnt") as mounted:
        assert (mounted / "shards/a/a.txt").read_bytes() == b"a" * 600
    write_tar(path, {"a.txt": b"c" * 600, "b.txt": b"b"})
    with by_kernel(tmp_path / "data", tmp_path / "mnt") as mounted:
        assert (mounted / "shards/a/a.txt").read_bytes() == b"c" * 600
        assert (mounted / "shards/a/b.txt").read_bytes() == b"b"


def test_no_extra_is_needed(tmp_path, data):
    code = (
        "import sys; sys.modules |= dict.fromkeys(('pyfuse3', 'trio', 'h11')); from touchfs.cli.main import main; "
        "sys.exit(main())"
    )

    def without(*words) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)

    done = without("mount", "--kernel=auto", data, tmp_path / "mnt")
    assert (done.returncode, done.stderr, is_mounted(tmp_path / "mnt")) == (0, "", True)
    assert without("status", tmp_path / "mnt").returncode == 0
    assert (without("umount", tmp_path / "mnt").returncode, is_mounted(tmp_path / "mnt")) == (0, False)


def images() -> list[Path]:
    return sorted(Path(index_directory()).glob("*.erofs"), key=lambda path: path.stat().st_mtime_ns)


def test_an_image_is_kept_and_a_damaged_one_is_made_again(tmp_path, data):
    with by_kernel(data, tmp_path / "mnt"):
        pass
    image = images()[-1]
    before, number = image.read_bytes(), image.stat().st_ino
    with by_kernel(data, tmp_path / "mnt"):
        assert image.stat().st_ino == number
    for offset in (1030, len(before) // 2, len(before) - 600):
        flip_byte(image, offset)
        with by_kernel(data, tmp_path / "mnt"):
            assert image.read_bytes() == before
    image.write_bytes(before[:-512])
    with by_kernel(data, tmp_path / "mnt"):
        assert image.read_bytes() == before


def test_an_image_of_another_user_is_never_mounted(tmp_path, data):
    with by_kernel(data, tmp_path / "mnt"):
        pass
    image = images()[-1]
    os.chown(image, NOBODY, NOBODY)
    for trust in ((), ("--trust", str(NOBODY))):
        done = touchfs("mount", "--kernel", *trust, data, tmp_path / "mnt")
        assert (done.returncode, done.stderr.count("\n"), is_mounted(tmp_path / "mnt")) == (32, 1, False)
        assert f"{image}: belongs to " in done.stderr
    image.unlink()
    image.symlink_to(data / "0.tar")
    done = touchfs("mount", "--kernel", data, tmp_path / "mnt")
    assert (done.returncode, "is a symbolic link" in done.stderr) == (32, True)
    image.unlink()


def refused(source, path: Path, *options, command=(TOUCHFS,)) -> str:
    done = subprocess.run(
        [*command, "mount", "--kernel", *map(str, options), source, path], capture_output=True, text=True, check=False
    )
    assert done.returncode
    assert done.stderr.count("\n") == 1, done.stderr
    assert not is_mounted(path)
    assert not path.exists()
    return done.stderr


def test_reasons_for_a_plain_mount(tmp_path, data):
    point = tmp_path / "mnt"
    (tmp_path / "lines.jsonl").write_text('{"id": "x"}\n')
    assert "an image has no files of shards that are JSON lines: leave out --kernel" in refused(
        tmp_path / "lines.jsonl", point
    )
    write_tar(tmp_path / "a.tar.gz", {"a.txt": b"a"})
    assert "no files of compressed shards: leave out --kernel" in refused(tmp_path / "a.tar.gz", point)
    assert "--workers needs a daemon: leave out --kernel" in refused(data, point, "--workers", 2)
    assert "--metrics needs a daemon: leave out --kernel" in refused(data, point, "-o", "metrics=0")
    (tmp_path / "ids.txt").write_text("a\n")
    named = f"good={tmp_path}/ids.txt"
    assert "--ids needs a daemon: leave out --kernel" in refused(data, point, "--ids", named)
    # Our Python may be in a home that others cannot enter.
    capabilities = "-all,+dac_read_search"
    as_nobody = [
        *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
        *(f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}", "env", f"XDG_CACHE_HOME={tmp_path}/c"),
        INSTALLED,
    ]
    (tmp_path / "c").mkdir()
    os.chown(tmp_path / "c", NOBODY, NOBODY)
    assert "only root can have the kernel mount an image: leave out --kernel" in refused(data, point, command=as_nobody)
    inside = refused(data, data / "mnt")
    assert "the mount point is inside the dataset" in inside


def test_more_tars_than_a_process_may_open(tmp_path):
    for number in range(80):
        write_tar(tmp_path / f"data/{number:03d}.tar", {"a.txt": b"a"})
    limited = ["prlimit", "--nofile=140:140", TOUCHFS]
    assert "80 files have to be open at once" in refused(tmp_path / "data", tmp_path / "mnt", command=limited)
    with by_kernel(tmp_path / "data", tmp_path / "mnt") as mounted:
        assert (mounted / "shards/079/a.txt").read_bytes() == b"a"


def test_an_index_where_no_image_can_be_mounted(tmp_path, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", f"/dev/shm/touchfs-test-{os.getpid()}")
        try:
            assert "not on tmpfs or overlayfs: leave out --kernel" in refused(data, tmp_path / "mnt")
        finally:
            subprocess.run(["rm", "-r", os.environ["XDG_CACHE_HOME"]], check=True)


def test_auto_falls_back_to_a_daemon(tmp_path, data):
    (tmp_path / "lines.jsonl").write_text('{"id": "x"}\n')
    (tmp_path / "none.tar").write_bytes(bytes(10240))
    for source, options in (
        (tmp_path / "lines.jsonl", ()),
        (tmp_path / "none.tar", ("--list-by-key",)),  # an image has no by-key/ without keys
        (data, ("--workers", "2")),
    ):
        done = touchfs("mount", "--kernel=auto", *options, source, tmp_path / "mnt")
        try:
            assert done.returncode == 0, done.stderr
            assert "mounted by a daemon: " in done.stderr
            assert (tmp_path / "mnt" / ".touchfs").exists()
        finally:
            touchfs("umount", tmp_path / "mnt")
    done = touchfs("mount", data, tmp_path / "mnt", "-o", "kernel=auto,noexec")
    try:
        assert "by the kernel" in done.stdout
        assert not (tmp_path / "mnt" / ".touchfs").exists()
    finally:
        assert touchfs("umount", tmp_path / "mnt").returncode == 0


def test_damaged_shards_are_left_out_and_named(tmp_path):
    good = write_tar(tmp_path / "data/good.tar", {"a.txt": b"a" * 600}).read_bytes()
    (tmp_path / "data/cut.tar").write_bytes(good[:700])
    done = touchfs("mount", "--kernel", tmp_path / "data", tmp_path / "mnt")
    try:
        assert "left out: 1 damaged shard, cut for one: " in done.stdout
        assert os.listdir(tmp_path / "mnt/shards") == ["good"]
    finally:
        touchfs("umount", tmp_path / "mnt")


def test_a_member_of_more_than_4_gib(tmp_path):
    path, size = tmp_path / "data/a.tar", (4 << 30) + 1000
    path.parent.mkdir()
    member = tarfile.TarInfo("large.bin")
    member.size = size
    with open(path, "wb") as file:
        file.write(member.tobuf())
        file.seek(512 + size - 4)
        file.write(b"last")
        file.truncate(512 + (4 << 30) + 1024 + 1024)
    with by_kernel(tmp_path / "data", tmp_path / "mnt") as mounted, open(mounted / "shards/a/large.bin", "rb") as shown:
        assert os.fstat(shown.fileno()).st_size == size
        assert os.pread(shown.fileno(), 10**6, size - 1000) == bytes(996) + b"last"
