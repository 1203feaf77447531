"""Whose files we believe. An attacker is user 65534; we are root."""

import os
from pathlib import Path

import pytest

from touchfs.core.errors import UntrustedError, UsageError
from touchfs.posix.trust import (
    atomic_own_file,
    check_trusted_directory,
    check_trusted_file,
    make_private,
    open_for_update,
    open_named,
    open_trusted,
    parse_users,
)

ATTACKER, OWNER = 65534, 12345

pytestmark = pytest.mark.usefixtures("as_root")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir(mode=0o700)
    return tmp_path / "place"


@pytest.fixture
def file(place: Path) -> Path:
    (place / "file").write_bytes(b"ours")
    return place / "file"


def is_refused(path: Path, reason: str, data: str | None = None) -> None:
    for check in (open_trusted, check_trusted_file):
        with pytest.raises(UntrustedError, match=reason):
            check(os.fspath(path), data)


def is_believed(path: Path, data: str | None = None) -> None:
    os.close(open_trusted(os.fspath(path), data))
    assert check_trusted_file(os.fspath(path), data).st_size == 4


def test_what_we_wrote(file: Path) -> None:
    is_believed(file)


def test_what_another_user_wrote(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(file, ATTACKER, ATTACKER)
    is_refused(file, "belongs to nobody")
    monkeypatch.setenv("TOUCHFS_TRUST", parse_users(["daemon", "nobody"]))
    is_believed(file)


@pytest.mark.parametrize("mode", [0o666, 0o620])
def test_what_others_may_write(file: Path, mode: int) -> None:
    os.chown(file, 0, ATTACKER)
    file.chmod(mode)
    is_refused(file, "others may write to this file")


def test_a_link(file: Path) -> None:
    file.rename(file.with_name("real"))
    file.symlink_to("real")
    is_refused(file, "is a symbolic link")


def test_a_pipe_and_a_directory(place: Path) -> None:
    os.mkfifo(place / "pipe")
    (place / "directory").mkdir()
    for name in ("pipe", "directory"):
        is_refused(place / name, "is not a regular file")
    with pytest.raises(FileNotFoundError):
        open_trusted(str(place / "nothing"))


@pytest.mark.parametrize(("owner", "mode", "reason"), [(ATTACKER, 0o755, "belongs to"), (0, 0o770, "others may write")])
def test_in_a_directory_of_others(file: Path, owner: int, mode: int, reason: str) -> None:
    os.chown(file.parent, owner, ATTACKER)
    file.parent.chmod(mode)
    with pytest.raises(UntrustedError, match=reason):
        check_trusted_directory(str(file.parent))
    with pytest.raises(UntrustedError, match=reason):
        open_trusted(str(file))


def test_in_a_sticky_directory_of_all(file: Path) -> None:
    file.parent.chmod(0o1777)
    is_believed(file)
    os.chown(file, ATTACKER, ATTACKER)
    is_refused(file, "belongs to nobody")


def test_a_directory_may_be_a_link_of_ours(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(file.parent)
    is_believed(tmp_path / "link" / "file")
    os.lchown(tmp_path / "link", ATTACKER, ATTACKER)
    with pytest.raises(UntrustedError, match="is a symbolic link of nobody"):
        open_trusted(str(tmp_path / "link" / "file"))


def test_the_owner_of_the_data_is_believed_beside_them_only(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for place in (tmp_path / ".touchfs-index", tmp_path / "cache"):
        place.mkdir(mode=0o755)
        (place / "file").write_bytes(b"ours")
        for path in (place, place / "file", tmp_path / "data"):
            os.chown(path, OWNER, OWNER)
    data = str(tmp_path / "data")
    is_believed(tmp_path / ".touchfs-index" / "file", data)
    is_refused(tmp_path / ".touchfs-index" / "file", "belongs to user 12345")
    is_refused(tmp_path / "cache" / "file", "belongs to user 12345", data)


def test_what_we_make_is_for_us_alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        with atomic_own_file(str(place / "file")) as file:
            file.write(b"ours")
        os.close(open_for_update(str(place / "log"), os.O_WRONLY))
    finally:
        os.umask(before)
    assert [(place / name).stat().st_mode & 0o777 for name in ("file", "log")] == [0o600, 0o600]
    place.chmod(0o755)
    make_private(str(place))
    assert place.stat().st_mode & 0o777 == 0o700


def test_beside_the_data_it_is_shared(tmp_path: Path) -> None:
    (tmp_path / ".touchfs-index").mkdir()
    before = os.umask(0)
    try:
        with atomic_own_file(str(tmp_path / ".touchfs-index" / "file")) as file:
            file.write(b"ours")
    finally:
        os.umask(before)
    is_believed(tmp_path / ".touchfs-index" / "file")
    assert (tmp_path / ".touchfs-index" / "file").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("make", ["atomic_own_file", "open_for_update"])
@pytest.mark.parametrize("plant", ["symlink", "hardlink"])
def test_nothing_is_written_through_a_link(place: Path, tmp_path: Path, make: str, plant: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    if plant == "symlink":
        (place / "file").symlink_to(victim)
    else:
        (place / "file").hardlink_to(victim)
    if make == "atomic_own_file":
        with atomic_own_file(str(place / "file")) as file:
            file.write(b"ours")
    else:
        descriptor = open_for_update(str(place / "file"), os.O_WRONLY)
        os.write(descriptor, b"ours")
        os.close(descriptor)
    assert victim.read_bytes() == b"precious"
    is_believed(place / "file")


def test_what_cannot_be_removed_is_not_changed(place: Path) -> None:
    (place / "log").mkdir()
    with pytest.raises(UntrustedError, match="is not a regular file"):
        open_for_update(str(place / "log"), os.O_WRONLY)


def test_users_are_named_or_numbered() -> None:
    assert parse_users(["root", "12345"]) == "0,12345"
    with pytest.raises(UsageError, match="there is no user 'nobody at all'"):
        parse_users(["nobody at all"])


OTHER = 12345


def link_of(owner: int, link: Path, target: Path) -> Path:
    link.symlink_to(target)
    os.chown(link, owner, owner, follow_symlinks=False)
    return link


def test_a_file_that_somebody_names_is_written_through_our_links_only(tmp_path: Path) -> None:
    """The link may be the file's own, or that of a directory above."""
    (tmp_path / "there").mkdir()
    victim = tmp_path / "there" / "victim"
    ours = link_of(os.geteuid(), tmp_path / "ours", victim)
    os.close(open_named(str(ours), os.O_WRONLY))
    victim.write_text("precious")
    (tmp_path / "theirs").mkdir()
    above = link_of(OTHER, tmp_path / "above", tmp_path / "there")
    for planted in (link_of(OTHER, tmp_path / "theirs/log", victim), above / "victim", above / "new"):
        with pytest.raises(UntrustedError, match=f"reached by a link of user {OTHER}"):
            open_named(str(planted), os.O_WRONLY)
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["victim"]
    for good in (ours, tmp_path / "new", Path("/dev/null")):
        descriptor = open_named(str(good), os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, b" more")
        os.close(descriptor)
    assert (victim.read_text(), (tmp_path / "new").read_text()) == ("precious more", " more")


def test_a_pipe_that_somebody_names_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = -1
    try:
        for _ in range(2):  # nobody reads it, then somebody does
            with pytest.raises(UntrustedError, match="not a regular file"):
                open_named(str(tmp_path / "pipe"), os.O_WRONLY)
            reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    finally:
        os.close(reader)
