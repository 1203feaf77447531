"""Signposts change how a name is found, and nothing else."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from touchfs.catalog.catalog import Catalog, Facts, FileKind, write_catalog
from touchfs.catalog.signposts import EVERY, NAMES_MAX, signposts
from touchfs.catalog.table import Table
from touchfs.catalog.table_builder import TableBuilder
from touchfs.core.names import quote
from touchfs.source.fingerprint import Fingerprint

FACTS = Facts({"audio.bin": Fingerprint(5, 6, 7)}, 3, 1.5, 5, 6, 1, "")
NAMES = st.text(min_size=1, max_size=4).map(quote)


def table_of(path: Path, names: list[bytes]) -> Table:
    """A table with one directory, which has a file of each name."""
    table = TableBuilder()
    for ordinal in range(len(names)):
        table.add(1, ordinal, 0, ordinal, 10, 10, 0, b"key %d" % ordinal, b"")
    columns = {"shards": table.columns((b"", name) for name in names)}
    write_catalog(str(path), columns, [FileKind("audio", "audio.bin", "wav/16000")], FACTS)
    return Catalog(str(path)).tables["shards"]


def search(table: Table, name: bytes) -> int | None:
    """The row of a name, found by signposts."""
    return table.search(signposts(table, 0).near(table.children(0), name), name)


@given(names=st.sets(NAMES, min_size=1, max_size=60), absent=st.lists(NAMES, max_size=20))
def test_every_name_and_no_other_is_found(tmp_path_factory, names, absent):
    table = table_of(tmp_path_factory.mktemp("signposts") / "catalog", sorted(names))
    for name in [*names, *absent, *(name + b"!" for name in names), *(name[:-1] for name in names), b"", b"\xff" * 5]:
        assert search(table, name) == table.find(0, name)
        assert (search(table, name) is None) == (name not in names)


def test_a_huge_directory_has_no_more_signposts_than_any(tmp_path):
    names = [b"%06d" % number for number in range(EVERY * NAMES_MAX + 1)]
    table = table_of(tmp_path / "catalog", names)
    assert len(signposts(table, 0).names) <= NAMES_MAX
    assert [search(table, name) for name in names] == list(table.children(0))
