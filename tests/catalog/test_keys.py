from __future__ import annotations

import os
import random
import struct
import zlib
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from touchfs.catalog import key_builder
from touchfs.catalog.catalog import Facts, FileKind, write_catalog
from touchfs.catalog.key_builder import KeyedShard, build_keys
from touchfs.catalog.keys import BLOCK, VERSION, Keys
from touchfs.catalog.table_builder import TableBuilder
from touchfs.core.errors import FormatError, NotFoundError
from touchfs.core.names import hash_of, quote

FACTS = Facts({}, 1, 1.0, 1, 1, 0, "")

# For each sample its key, empty for none, and how many files it has.
KEYS = st.sampled_from(["", "a", "b", "x~2", "ü/一", "../..", "\n"]) | st.text(max_size=4)
SHARDS = st.lists(st.lists(st.tuples(KEYS, st.integers(1, 3)), max_size=8), max_size=5)


def shard(place: Path, samples: list[tuple[str, int]]) -> KeyedShard:
    """A catalog of a shard, whose name and identity nothing else has."""
    identity = random.randbytes(16).hex()
    table = TableBuilder()
    for ordinal, (key, files) in enumerate(samples):
        for file in range(files):
            table.add(1, ordinal, 0, 0, 0, 0, 2, key.encode("utf-8", "surrogatepass"))
            assert file < 10
    names = [(b"", b"%d.%d" % (ordinal, file)) for ordinal, (_, files) in enumerate(samples) for file in range(files)]
    path = str(place / identity)
    write_catalog(path, {"shards": table.columns(names)}, [FileKind("f", "s", "bytes")], FACTS)
    return KeyedShard(identity, len(samples), path)


def check(path: str, shards: list[list[tuple[str, int]]]) -> None:
    """The index has all samples with a key, and nothing else."""
    keys = Keys(path)
    expected = Counter(
        (hash_of(quote(key)), position, ordinal)
        for position, samples in enumerate(shards)
        for ordinal, (key, _) in enumerate(samples)
        if key
    )
    found = [(keys.hash(place), *keys.holder(place)) for place in range(len(keys))]
    assert found == sorted(expected.elements())
    for hash_ in {hash_ for hash_, _, _ in expected} | {0, 1, 2**64 - 1, hash_of(b"absent")}:
        assert [(hash_, *keys.holder(place)) for place in keys.find(hash_)] == [e for e in found if e[0] == hash_]


@settings(max_examples=settings().max_examples // 2)
@given(SHARDS, SHARDS, st.randoms())
def test_an_index_holds_every_key_and_grows(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[list[tuple[str, int]]],
    more: list[list[tuple[str, int]]],
    random_: random.Random,
) -> None:
    place = tmp_path_factory.mktemp("keys")
    path = str(place / "x.keys")
    made = [(samples, shard(place, samples)) for samples in first]
    build_keys(path, [keyed for _, keyed in made], None)
    check(path, first)

    kept = random_.sample(made, random_.randint(0, len(made)))  # some are gone, all in another order
    kept += random_.sample(kept, random_.randint(0, len(kept)))  # some are listed twice
    then = kept + [(samples, shard(place, samples)) for samples in more]
    random_.shuffle(then)
    gone = {keyed.catalog for _, keyed in made}
    for catalog in gone:
        os.rename(catalog, catalog + ".away")
    known = {keyed.identity for _, keyed in made}
    again = Counter(keyed.identity for _, keyed in then)
    if any(again[identity] > 1 for identity in known):
        for catalog in gone:  # the second time a shard is listed, its catalog is read
            os.rename(catalog + ".away", catalog)
    build_keys(path, [keyed for _, keyed in then], Keys(path))
    check(path, [samples for samples, _ in then])
    assert not [name for name in os.listdir(place) if name.startswith(".touchfs-tmp-")]


def test_many_parts_and_groups_on_an_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_builder, "PART_ENTRIES", 100)
    monkeypatch.setattr(key_builder, "GROUP_SAMPLES", 150)
    shards = [[(f"{number}-{i}" if i % 7 else "", 1) for i in range(400)] for number in range(5)]
    keyed = [shard(tmp_path, samples) for samples in shards]
    with ProcessPoolExecutor(2) as executor:
        build_keys(str(tmp_path / "x.keys"), keyed, None, executor)
    check(str(tmp_path / "x.keys"), shards)
    build_keys(str(tmp_path / "x.keys"), keyed[1:], Keys(str(tmp_path / "x.keys")))
    check(str(tmp_path / "x.keys"), shards[1:])


def write(path: Path, hashes: list[int]) -> Keys:
    """An index with these hashes."""
    entries = b"".join(struct.pack("<QII", hash_, ordinal, 0) for ordinal, hash_ in enumerate(sorted(hashes)))
    data = struct.pack("<8sIIQ40x", b"TOUCHKEY", VERSION, 1, len(hashes)) + bytes(16) + entries
    checksums = struct.pack(
        f"<{-(-len(data) // BLOCK)}I", *(zlib.crc32(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK))
    )
    path.write_bytes(data + checksums + struct.pack("<I", zlib.crc32(checksums)))
    return Keys(str(path))


HASHES = st.integers(0, 2**64 - 1) | st.integers(0, 300) | st.integers(2**64 - 300, 2**64 - 1)


@settings(deadline=None)
@given(st.lists(HASHES, max_size=300), HASHES)
@example([0] * 200, 0)
@example([2**64 - 1] * 200, 2**64 - 1)
@example([1 << i for i in range(64)] * 4, 1 << 40)
def test_hashes_of_any_spread_are_found(
    tmp_path_factory: pytest.TempPathFactory, hashes: list[int], absent: int
) -> None:
    keys = write(tmp_path_factory.getbasetemp() / "any.keys", hashes)
    ordered = sorted(hashes)
    for hash_ in {*hashes, absent}:
        first = ordered.index(hash_) if hash_ in ordered else None
        found = keys.find(hash_)
        assert len(found) == ordered.count(hash_)
        assert not found or found.start == first


def test_among_many(tmp_path: Path) -> None:
    random_ = random.Random(0)
    hashes = [random_.getrandbits(64) for _ in range(100_000)]
    keys = write(tmp_path / "x.keys", hashes)
    for hash_ in random_.sample(hashes, 500):
        (place,) = keys.find(hash_)
        assert keys.hash(place) == hash_
        assert not keys.find(hash_ ^ 1 << 17)


def test_no_changed_bit_finds_another_sample(tmp_path: Path) -> None:
    """Of two samples with one key, the second would be the first."""
    path = tmp_path / "x.keys"
    build_keys(str(path), [shard(tmp_path, [("a", 1), ("a", 1), ("b", 1)])], None)
    whole, sought = path.read_bytes(), hash_of(b"a")
    assert len(Keys(str(path)).find(sought)) == 2
    for place in range(len(whole)):
        path.unlink()  # ext4 writes a file that is cut and written again to the disk at once, which takes 1 ms
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(FormatError, match=r"checksum is wrong|not an index of keys"):
            Keys(str(path)).find(sought)


def test_damage_in_one_block_of_many(tmp_path: Path) -> None:
    """Searches that end in another block find what is there, or are an error."""
    path, dice = tmp_path / "x.keys", random.Random(3)
    hashes = [dice.getrandbits(64) for _ in range(3 * BLOCK // 16)] + [1 << 63] * 5
    write(path, hashes)
    with open(path, "r+b") as file:
        file.seek(BLOCK)
        file.write(dice.randbytes(BLOCK))
    found = errors = 0
    for hash_ in [1 << 63, *dice.sample(hashes, 600)]:
        keys = Keys(str(path))
        for sought in (hash_, hash_ ^ 1 << 20):
            try:
                assert len(keys.find(sought)) == hashes.count(sought)
                found += 1
            except FormatError:
                errors += 1
    assert found > 500 and errors > 300
    for read in (lambda: keys.repeated, keys.check):
        with pytest.raises(FormatError, match="its checksum is wrong: index with --force"):
            read()


@pytest.mark.parametrize("damage", [b"", b"TOUCHKEY", lambda data: data[:-1], lambda data: data + b"x"])
def test_what_is_no_index(tmp_path: Path, damage: object) -> None:
    write(tmp_path / "x.keys", [1, 2, 3])
    whole = (tmp_path / "x.keys").read_bytes()
    (tmp_path / "x.keys").write_bytes(damage(whole) if callable(damage) else damage)  # type: ignore[arg-type]
    with pytest.raises(FormatError):
        Keys(str(tmp_path / "x.keys"))
    with pytest.raises(NotFoundError):
        Keys(str(tmp_path / "absent"))
