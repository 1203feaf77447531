"""`touchfs image`: what it prints, refuses and finds."""

from tars import write_tar


def test_an_image_is_written_once_and_checked(here, text, touchfs):
    write_tar(here / "data/a.tar", {"a.txt": b"a" * 600, "b.bin": b"b"})
    write_tar(here / "data/b.tar.gz", {"c.txt": b"c"})
    (here / "data/c.tar").write_bytes(b"n" * 2000)
    done = touchfs("image", "data", "-o", "x.erofs", "--by-key")
    lines = done.stdout.decode().splitlines()
    assert (done.returncode, lines[0].rpartition(", ")[0]) == (0, "x.erofs: 1 shard, 2 files, 2 links")
    assert lines[1:] == ["left out: 1 file of compressed shards"]
    assert done.stderr.startswith(b"touchfs: left out: c: ")
    written = (here / "x.erofs").read_bytes()
    assert text("image", "data", "-o", "x.erofs", "--by-key", "--check") == "x.erofs: no problem"
    again = touchfs("image", "data", "-o", "x.erofs")
    assert (again.returncode, again.stderr) == (2, b"touchfs: x.erofs: already exists: --force replaces it\n")
    assert (here / "x.erofs").read_bytes() == written
    touchfs("image", "data", "-o", "x.erofs", "--force")
    assert (here / "x.erofs").read_bytes() != written
    wrong = touchfs("image", "data", "-o", "x.erofs", "--by-key", "--check")
    assert wrong.returncode == 1
    assert wrong.stdout.decode().splitlines() == [
        "x.erofs: is an image of other data, or of other options: write it again with --force",
        "x.erofs: 1 problem",
    ]


def test_what_no_image_can_have_is_refused_in_a_line(here, touchfs):
    (here / "a.jsonl").write_text('{"id": "x"}\n')
    done = touchfs("image", "a.jsonl", "-o", "x.erofs")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"1 file of shards that are JSON lines" in done.stderr
    assert not (here / "x.erofs").exists()
    missing = touchfs("image", "a.jsonl", "-o", "nowhere/x.erofs", "--check")
    assert (missing.returncode, missing.stderr.count(b"\n")) == (2, 1)


def test_files_of_overlays_are_in_the_image(here, touchfs, text):
    write_tar(here / "data/a.tar", {"a.txt": b"a" * 600, "b.bin": b"b" * 600})
    (here / "o.jsonl").write_text('{"key": "a", "n": 1}\n{"key": "b", "tags": []}\n')
    told = text("image", "--overlay", "o.jsonl", "data", "-o", "x.erofs").splitlines()
    assert len(told) == 1 and told[0].startswith("x.erofs: 1 shard, 5 files, ")
    assert text("image", "--overlay", "o.jsonl", "data", "-o", "x.erofs", "--check") == "x.erofs: no problem"
    (here / "o.jsonl").write_text('{"key": "a", "n": 2}\n{"key": "b", "tags": []}\n')
    changed = touchfs("image", "--overlay", "o.jsonl", "data", "-o", "x.erofs", "--check")
    assert changed.stdout.splitlines()[0].startswith(b"x.erofs: is an image of other data")
