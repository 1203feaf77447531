"""Links in data of a user, mounted by root for all: they show nothing that their owner could not read."""

import errno
import os
from pathlib import Path

import pytest
from mounts import Mount

OWNER = 65534
LINES = b'{"id": "one"}\n'
SECRET = b'{"id": "secret"}\n'

pytestmark = pytest.mark.usefixtures("as_root")


@pytest.fixture
def source(public) -> Path:
    """A directory of a user, with links of that user, and root's files beside it."""
    source = public / "data"
    source.mkdir()
    private = public / "private"
    private.mkdir(mode=0o700)
    for path, data in {
        private / "open.jsonl": SECRET,
        public / "closed.jsonl": SECRET,
        public / "all.jsonl": LINES,
    }.items():
        path.write_bytes(data)
    (public / "closed.jsonl").chmod(0o600)
    (public / "own.jsonl").write_bytes(LINES)
    os.chown(public / "own.jsonl", OWNER, OWNER)
    (public / "own.jsonl").chmod(0o600)
    (source / "plain.jsonl").write_bytes(LINES)
    for name, target in {
        "all": "../all.jsonl",
        "closed": public / "closed.jsonl",
        "own": "../own.jsonl",
        "chain": "closed.jsonl",
        "searched": "../private/open.jsonl",
    }.items():
        (source / f"{name}.jsonl").symlink_to(target)
    (source / "directory").symlink_to("../private")
    (source / "of_root.jsonl").symlink_to("../closed.jsonl")
    for path in [source, *source.iterdir()]:
        os.chown(path, OWNER, OWNER, follow_symlinks=False)
    os.lchown(source / "of_root.jsonl", 0, 0)
    return source


def shown(mounted: Mount) -> dict[str, list[str]]:
    return {shard: sorted(os.listdir(mounted.path / "shards" / shard)) for shard in os.listdir(mounted.path / "shards")}


def test_only_what_the_owner_of_a_link_could_read_is_shown_to_others(mount, source):
    mounted = mount(source, "--allow-other")
    assert shown(mounted) == {
        "all": ["one.json"],
        "chain": ["ERROR.txt"],
        "closed": ["ERROR.txt"],
        "of_root": ["secret.json"],
        "own": ["one.json"],
        "plain": ["one.json"],
        "searched": ["ERROR.txt"],
    }
    text = (mounted.path / "shards" / "closed" / "ERROR.txt").read_text()
    assert f"{source}/closed.jsonl: is reached by a link of nobody, who may not read it" in text
    assert (mounted.path / "shards" / "all" / "one.json").read_bytes() == LINES
    assert (mounted.path / "by-key" / "one.json").exists()


def test_to_root_alone_all_is_shown(mount, source):
    assert shown(mount(source))["closed"] == ["secret.json"]


def test_an_index_that_was_made_without_others_shows_them_nothing(mount, source):
    assert shown(mount(source, name="one"))["closed"] == ["secret.json"]
    assert shown(mount(source, "--allow-other", name="two"))["closed"] == ["ERROR.txt"]


def test_a_link_that_is_changed_while_it_is_mounted(mount, source, public):
    mounted = mount(source, "--allow-other")
    (source / "all.jsonl").unlink()
    (source / "all.jsonl").symlink_to("../closed.jsonl")
    os.lchown(source / "all.jsonl", OWNER, OWNER)
    with pytest.raises(OSError) as caught:
        (mounted.path / "shards" / "all" / "one.json").read_bytes()
    assert caught.value.errno in (errno.ESTALE, errno.EIO)
