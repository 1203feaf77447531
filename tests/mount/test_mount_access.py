"""Who may read what in a mount that others are let into: those who may read it at the source."""

import os
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest
import soundfile
from mounts import WAYS, Mount, touchfs, ways
from wav_files import wav_of

OWNER, GROUP = 12345, 54321
LINES = b'{"id": "one"}\n'

pytestmark = pytest.mark.usefixtures("as_root")


@pytest.fixture
def source(public) -> Path:
    """Shards of several owners and modes."""
    source = public / "data"
    source.mkdir()
    for name, owner, group, mode in (
        ("all", 0, 0, 0o644),
        ("own", OWNER, GROUP, 0o600),
        ("group", OWNER, GROUP, 0o640),
        ("others", OWNER, GROUP, 0o604),
    ):
        path = source / f"{name}.jsonl"
        path.write_bytes(LINES.replace(b"one", name.encode()))
        os.chown(path, owner, group)
        path.chmod(mode)
    (source / "link.jsonl").symlink_to("group.jsonl")
    closed = source / "closed"
    closed.mkdir(mode=0o700)
    (closed / "below.jsonl").write_bytes(LINES)
    return source


def shows(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


def reads(user: int, path: Path, group: int = 65534) -> bool:
    ids = [f"--reuid={user}", f"--regid={group}", "--clear-groups"]
    return subprocess.run(["setpriv", *ids, "cat", path], capture_output=True, check=False).returncode == 0


def file(mounted: Mount, shard: str, name: str = "") -> Path:
    return mounted.path / "shards" / shard / f"{name or shard}.json"


def test_without_others_nothing_is_told_of_the_source(mount, source):
    mounted = mount(source)
    assert shows(file(mounted, "own")) == (0, 0, 0o444)
    assert shows(mounted.path / "shards" / "own") == (0, 0, 0o755)
    assert shows(mounted.path) == (0, 0, 0o755)


def test_files_show_what_their_source_shows(mount, source):
    mounted = mount(source, "--allow-other")
    assert shows(file(mounted, "all")) == (0, 0, 0o444)
    assert shows(file(mounted, "own")) == (OWNER, GROUP, 0o400)
    assert shows(file(mounted, "group")) == (OWNER, GROUP, 0o440)
    assert shows(file(mounted, "others")) == (OWNER, GROUP, 0o404)
    assert shows(file(mounted, "link", "group")) == (OWNER, GROUP, 0o440)
    assert shows(file(mounted, "below", "one")) == (0, 0, 0o400)
    assert shows(mounted.path / "shards" / "group") == (OWNER, GROUP, 0o750)
    assert shows(mounted.path / "shards") == (0, 0, 0o755)


@pytest.mark.parametrize("way", ways())
def test_others_read_what_they_can_read_at_the_source(public, source, way):
    mounted = Mount(public / "mnt", source, "--allow-other", *WAYS[way])
    try:
        users = [(OWNER, 65534), (65534, GROUP), (65534, 65534)]
        for name, shard in {"all": "all", "own": "own", "group": "group", "others": "others", "one": "below"}.items():
            at_source = source / ("closed/below.jsonl" if shard == "below" else f"{shard}.jsonl")
            for user, group in users:
                there, here = reads(user, at_source, group), reads(user, file(mounted, shard, name), group)
                assert there == here, (shard, user, group)
        assert not reads(65534, mounted.path / "by-key" / "own.json")
        listed = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "ls", mounted.path / "by-key"]
        assert subprocess.run(listed, capture_output=True, check=False).returncode != 0
    finally:
        mounted.end()


def test_the_root_is_for_those_who_reach_the_source(public, source):
    for mode, reached in ((0o700, False), (0o711, True), (0o755, True)):
        source.chmod(mode)
        mounted = Mount(public / "mnt", source, "--allow-other")
        try:
            assert reads(65534, file(mounted, "all")) is reached
            assert reads(0, file(mounted, "all"))
        finally:
            mounted.end()
    (public / "above").mkdir(mode=0o750)
    os.chown(public / "above", 0, GROUP)
    shutil.copytree(source, public / "above" / "data", symlinks=True)
    mounted = Mount(public / "mnt", public / "above" / "data", "--allow-other")
    try:
        assert shows(mounted.path) == (0, GROUP, 0o750)
        assert [reads(65534, file(mounted, "all"), group) for group in (GROUP, 65534)] == [True, False]
    finally:
        mounted.end()


def test_the_strictest_of_several_files_counts(mount, copied, tmp_path):
    shard = copied / "000000000"
    (shard / "metainfo.bin").chmod(0o600)
    os.chown(shard / "audio.bin", OWNER, GROUP)
    mounted = mount(copied, "--allow-other")
    shown = {shows(path) for path in (mounted.path / "shards" / "000000000").rglob("*") if path.is_file()}
    assert shown == {(0, 0, 0o400)}
    assert shows(next((mounted.path / "shards" / "000000001").rglob("*.txt"))) == (0, 0, 0o444)


def test_lists_are_for_those_who_may_read_all_shards(mount, copied):
    mounted = mount(copied, "--allow-other")
    assert shows(mounted.path / "manifests" / "kaldi" / "text") == (0, 0, 0o444)
    mounted.end()
    (copied / "000000000" / "metainfo.bin").chmod(0o600)
    mounted = mount(copied, "--allow-other")
    assert shows(mounted.path / "manifests" / "kaldi" / "text") == (0, 0, 0o400)
    assert shows(mounted.path / "manifests" / "kaldi") == (0, 0, 0o711)


def test_options_replace_both(public, source):
    source.chmod(0o700)
    options = ("--uid", OWNER, "--gid", GROUP, "--umask", "027")
    mounted = Mount(public / "mnt", source, "--allow-other", *options)
    try:
        assert shows(file(mounted, "own")) == shows(file(mounted, "all")) == (OWNER, GROUP, 0o440)
        assert shows(mounted.path) == shows(mounted.path / "shards" / "own") == (OWNER, GROUP, 0o750)
        assert [reads(65534, file(mounted, "own"), group) for group in (GROUP, 65534)] == [True, False]
    finally:
        mounted.end()


def test_a_reload_shows_what_has_changed(mount, source):
    mounted = mount(source, "--allow-other")
    assert shows(file(mounted, "all")) == (0, 0, 0o444)
    (source / "all.jsonl").chmod(0o600)
    assert touchfs("reload", mounted.path).returncode == 0
    assert shows(file(mounted, "all")) == (0, 0, 0o400)
    assert shows(mounted.path / "shards" / "all") == (0, 0, 0o700)


def test_iterators_do_not_tell_others_the_keys(public, source):
    mounted = Mount(public / "mnt", source, "--allow-other")
    try:
        iterator = mounted.path / ".touchfs" / "iterators" / "it"
        iterator.mkdir()
        assert (iterator / "peek").read_bytes()
        assert not reads(65534, iterator / "peek")
    finally:
        mounted.end()


def test_others_do_not_take_all_plans(public, source):
    (source / "talks.jsonl").write_text('{"id": "talk", "segments": [{"start": 0, "end": 1}]}\n')
    mounted = Mount(public / "mnt", source, "--allow-other")
    merged = mounted.path / "merged"
    try:
        (mounted.path / ".touchfs" / "iterators" / "it").mkdir()
        (mounted.path / ".touchfs" / "iterators" / "it" / "spec").write_text('{"source": "merged/max=7.5"}')
        script = f"for i in $(seq 1 110); do stat {merged}/max=$i && echo; done; stat {merged}/max=7.5 && echo own"
        guest = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script]
        done = subprocess.run(guest, capture_output=True, text=True, check=False)
        assert done.stderr.count("No space left on device") == 10
        assert done.stdout.endswith("own\n"), "an iterator's plan is the mounter's"
        for number in range(1, 120):
            assert (merged / f"max={number}").is_dir()
    finally:
        mounted.end()


def test_texts_of_kaldis_lists_are_for_whoever_may_read_the_lists(public):
    (data := public / "data").mkdir()
    (public / "a.wav").write_bytes(wav_of(bytes(16000)))
    subprocess.run(["tar", "-C", public, "-cf", data / "x.tar", "a.wav"], check=True)
    (data / "segments").write_text("u a 0 1\n")
    (data / "text").write_text("u secret\n")
    for mode in (0o644, 0o600):
        (data / "text").chmod(mode)
        mounted = Mount(public / f"mnt{mode}", data, "--allow-other")
        try:
            text = mounted.path / "segments/x/a/0000.txt"
            assert text.read_bytes() == b"secret"
            assert reads(OWNER, text) is (mode == 0o644)
        finally:
            mounted.end()


def test_slices_are_for_those_who_may_read_the_recording(public):
    (public / "data").mkdir()
    for name, mode in (("own", 0o600), ("all", 0o644)):
        soundfile.write(public / "a.wav", [[0.5]] * 800, 8000)
        with tarfile.open(public / "data" / f"{name}.tar", "w") as tar:
            tar.add(public / "a.wav", "a/b.wav")
        (public / "data" / f"{name}.tar").chmod(mode)
    mounted = Mount(public / "mnt", public / "data", "--allow-other")
    slices = mounted.path / "slices"
    try:
        for span in ("0.01-0.02", "5s-9s", "0.010-0.020", "all"):
            assert shows(slices / span / "own/a/b.wav") == (0, 0, 0o400)
            assert shows(slices / span / "own/a") == (0, 0, 0o700)
            assert reads(65534, slices / span / "all/a/b.wav")
            assert not reads(65534, slices / span / "own/a/b.wav")
        # A name that nobody has looked up before is added for the guest.
        assert reads(65534, slices / "1s-2s" / "all/a/b.wav")
    finally:
        mounted.end()
