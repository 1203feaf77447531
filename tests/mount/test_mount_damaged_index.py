"""A mount whose index is damaged: what can be made again is, and the log names the file."""

from pathlib import Path

from damage import flip_byte
from mounts import touchfs
from tars import write_tar

# Their keys take two blocks of the index of keys, of which one is compared when the dataset is opened.
FILES = {f"s{number:04}.txt": b"text %d" % number for number in range(5000)}


def test_no_other_bytes_are_shown(tmp_path: Path, mount) -> None:
    write_tar(tmp_path / "data" / "a.tar", FILES)
    assert touchfs("index", "--in-place", tmp_path / "data").returncode == 0
    (catalog,) = (tmp_path / "data" / ".touchfs-index").glob("*.arrow")
    (keys,) = catalog.parent.glob("*.keys")
    flip_byte(keys, keys.stat().st_size - 20)
    mounted = mount(tmp_path / "data", "--in-place", "--list-by-key", "--log-file", tmp_path / "log")
    flip_byte(catalog, catalog.stat().st_size // 2)
    for name in list(FILES)[::100]:
        assert (mounted.path / "shards" / "a" / name).read_bytes() == FILES[name]
    assert not (mounted.path / "by-key").exists()
    log = (tmp_path / "log").read_text()
    assert f"there is no by-key/: {keys}: its checksum is wrong: index with --force" in log
    assert log.count(f"{catalog}: is damaged, and made again") == 1
    mounted.end()
    (told, _) = touchfs("verify", "--in-place", tmp_path / "data").stdout.splitlines()
    assert told == "by-key: its index does not fit the catalogs: `touchfs index --force` makes it again"
    assert touchfs("index", "--in-place", "--force", tmp_path / "data").returncode == 0
    assert touchfs("verify", "--in-place", tmp_path / "data").returncode == 0
