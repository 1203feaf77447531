"""Caches appear as a whole: old or new, with the modes of the umask, and without leftovers."""

import fcntl
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from touchfs.caches.writers.publish import build_once, publish
from touchfs.core.errors import SourceError, UsageError
from touchfs.format.cache_metadata.layouts import LanceMetadata
from touchfs.posix.exchange import CannotExchangeError
from touchfs.posix.published import hold_directory

METADATA = LanceMetadata(num_rows=0, schema_fingerprint="")


def write(place, text):
    with publish(place) as building:
        (building.path / "inner").mkdir()
        (building.path / "inner" / "data").write_text(text)
        building.commit(METADATA)


def text_of(place):
    return (place / "inner" / "data").read_text()


def test_a_cache_is_replaced(tmp_path):
    place = tmp_path / "deep" / "name_v1.0"
    for text in ("old", "new"):
        write(place, text)
        assert text_of(place) == text and (place / "_metadata.json").is_file()
    assert sorted(os.listdir(tmp_path / "deep")) == ["name_v1.0", "name_v1.0.lock"]


def test_modes_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write(tmp_path / "cache", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o750
    assert stat.S_IMODE((tmp_path / "cache" / "_metadata.json").stat().st_mode) == 0o640


@pytest.mark.parametrize("error", [ValueError("mine"), OSError(2, "mine"), KeyboardInterrupt()])
def test_an_error_leaves_nothing_behind(tmp_path, error):
    write(tmp_path / "cache", "old")
    with pytest.raises(type(error)) as raised, publish(tmp_path / "cache") as building:
        (building.path / "data").write_text("half")
        (building.inputs / "data").write_text("half")
        raise error
    assert raised.value is error
    assert sorted(os.listdir(tmp_path)) == ["cache", "cache.lock"] and text_of(tmp_path / "cache") == "old"


def test_no_commit_leaves_nothing_behind(tmp_path):
    with publish(tmp_path / "cache") as building:
        (building.inputs / "data").write_text("half")
    assert os.listdir(tmp_path) == []


def test_what_is_no_cache_is_not_replaced(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").touch()
    (tmp_path / "file").touch()
    for name in ("home", "file"):
        with pytest.raises(UsageError, match="is not a cache"):
            write(tmp_path / name, "x")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty", "x")
    (tmp_path / "link").symlink_to("empty")
    write(tmp_path / "link", "y")
    assert (tmp_path / "link").is_symlink() and text_of(tmp_path / "empty") == "y"


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="cannot be written"):
        write(tmp_path / "file" / "cache", "x")


def test_an_old_cache_stays_until_nobody_holds_it(tmp_path):
    place = tmp_path / "cache"
    write(place, "old")
    held = hold_directory(place)
    write(place, "new")
    with open(f"/proc/self/fd/{held}/inner/data") as file:
        assert file.read() == "old"
    write(place, "newer")  # removes what it replaces, not what is held
    assert len(list(tmp_path.glob(".cache_tmp_*"))) == 1
    os.close(held)
    write(place, "newest")
    assert sorted(os.listdir(tmp_path)) == ["cache", "cache.lock"] and text_of(place) == "newest"


def test_leftovers_of_killed_builders_go_at_the_next_build(tmp_path):
    place = tmp_path / "cache"
    script = f"""
import os, signal
from touchfs.caches.writers.publish import publish
with publish({str(place)!r}) as building:
    (building.path / "data").write_text("half")
    (building.inputs / "data").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == -9
    # Of the original tool, which may be at work, and of another cache.
    others = [".cache_tmp_ab12_3xy", ".cache2_tmp_0123456789abcdef", ".cache_tmp_0123456789abcdef.txt"]
    for name in others:
        (tmp_path / name).mkdir()
    assert len(os.listdir(tmp_path)) == 3 + len(others)
    write(place, "x")
    assert sorted(os.listdir(tmp_path)) == sorted(["cache", "cache.lock", *others])


def test_who_is_at_work_is_not_a_leftover(tmp_path):
    """Even if somebody removed the lock."""
    with publish(tmp_path / "cache") as building:
        (building.path / "data").touch()
        (tmp_path / "cache.lock").unlink()
        write(tmp_path / "cache", "x")
        assert (building.path / "data").exists()


def test_leftovers_that_are_links_are_not_followed(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data").touch()
    (tmp_path / ".cache_tmp_0123456789abcdef").symlink_to("mine")
    write(tmp_path / "cache", "x")
    assert (tmp_path / "mine" / "data").exists()


def test_builders_wait_for_each_other(tmp_path):
    place = tmp_path / "cache"
    inside = []

    def build(text):
        with publish(place) as building:
            inside.append(text)
            time.sleep(0.05)
            assert len(inside) == 1
            (building.path / "inner").mkdir()
            (building.path / "inner" / "data").write_text(text)
            building.commit(METADATA)
            inside.clear()

    threads = [threading.Thread(target=build, args=(str(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert inside == [] and text_of(place) in "0123"


def test_the_lock_is_that_of_the_original_tool(tmp_path):
    """It locks `NAME.lock` with flock. A dot in the name cuts nothing off."""
    place = tmp_path / "cache_v1.5_x"
    with open(tmp_path / "cache_v1.5_x.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        thread = threading.Thread(target=write, args=(place, "x"))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive() and not place.exists()
        write(tmp_path / "cache_v1.6_x", "y")
    thread.join(60)
    assert text_of(place) == "x"


def test_processes_build_once(tmp_path):
    script = f"""
import time
from touchfs.format.cache_metadata.layouts import LanceMetadata
from touchfs.caches.writers.publish import build_once, publish
def build():
    with publish({str(tmp_path / "cache")!r}) as building:
        time.sleep(0.3)
        building.commit(LanceMetadata(num_rows=0, schema_fingerprint=""))
print(build_once({str(tmp_path / "cache")!r}, build))
"""
    processes = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sorted(process.communicate(timeout=60)[0] for process in processes) == ["False\n"] * 2 + ["True\n"]


def test_a_build_that_fails_is_tried_again(tmp_path):
    def fail():
        raise OSError(2, "mine")

    with pytest.raises(OSError, match="mine"):
        build_once(tmp_path / "cache", fail)
    assert build_once(tmp_path / "cache", lambda: write(tmp_path / "cache", "x"))
    assert not build_once(tmp_path / "cache", fail)


def test_a_file_system_that_cannot_swap(tmp_path, monkeypatch):
    def refuse(first, second):
        raise CannotExchangeError("cannot")

    monkeypatch.setattr("touchfs.posix.published.exchange", refuse)
    place = tmp_path / "cache"
    for text in ("old", "new"):
        write(place, text)
        assert text_of(place) == text
    # Killed between the two renames: the old cache comes back at the next build, even if that fails.
    os.rename(place, tmp_path / ".cache_tmp_0123456789abcdef~")
    with publish(place):
        pass
    assert text_of(place) == "new" and sorted(os.listdir(tmp_path)) == ["cache", "cache.lock"]


def test_all_is_flushed_before_it_is_published(tmp_path, monkeypatch):
    events = []
    fsync, rename = os.fsync, os.rename

    def noted_fsync(descriptor):
        events.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def noted_rename(old, new):
        events.append("renamed")
        rename(old, new)

    monkeypatch.setattr("os.fsync", noted_fsync)
    monkeypatch.setattr("os.rename", noted_rename)
    write(tmp_path / "cache", "x")
    before, after = events[: events.index("renamed")], events[events.index("renamed") + 1 :]
    assert {"data", "inner", "_metadata.json"} < set(before) and after == [tmp_path.name]


@pytest.mark.parametrize("build", [lambda place: publish(place), lambda place: build_once(place, lambda: 1 / 0)])
def test_a_build_that_fails_leaves_no_lock(tmp_path, build):
    with pytest.raises(ZeroDivisionError), build(tmp_path / "cache"):
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []
    (tmp_path / "cache.lock").touch()  # of the original tool, which may be about to lock it
    with pytest.raises(ZeroDivisionError), publish(tmp_path / "cache"):
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == ["cache.lock"]


def test_what_is_no_cache_gets_no_lock_beside_it(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").touch()
    with pytest.raises(UsageError, match="is not a cache"), publish(tmp_path / "home"):
        raise AssertionError
    assert os.listdir(tmp_path) == ["home"]
