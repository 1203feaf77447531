"""Metainfo out of shards and in again: only what differs is written, both files or neither, the recordings never."""

import fcntl
import itertools
import json
import os
import random
import shutil
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from killed import FORK, kill_before, operations
from touchnet import INT16, UINT8, as_json, write_modality, write_shard, write_speech
from twice import Twice

from touchfs.bulk.annotations import Annotations, PutReport, get_annotations, put_annotations
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, SourceError, TouchfsError, UsageError

KILLS, OPERATIONS = 40, 16
# So often have readers met another version.
CHANGES = 8
PAIR = ("metainfo.bin", "metainfo.idx")

SAMPLES: list[list[Any]] = [
    [
        {"key": "a", "txt": "one"},
        {"key": 7, "txt": "zwölf"},
        {"txt": "nobody"},
        b'{ "key":"caf\xc3\xa9" , "n": 1.50, "n": 1e400}',
    ],
    [],
    [{"key": "a", "txt": "again\nand \\ again"}, {"key": "\ud800", "txt": ""}, {"key": None, "txt": "nor this"}],
    [{"key": "z/9", "info": {"segments": [{"start": 0, "end": 1}]}}],
]


def stored(samples: Sequence[Any]) -> list[bytes]:
    return [sample if isinstance(sample, bytes) else as_json(sample) for sample in samples]


def write(place: Path, samples: Sequence[Sequence[Any]] = SAMPLES) -> list[Path]:
    return [
        write_speech(place / f"{i:09d}", [(one, bytes([i, j] * 9)) for j, one in enumerate(each)])
        for i, each in enumerate(samples)
    ]


def opened(shards: Sequence[Path], modality: str = "metainfo") -> list[Annotations]:
    return [Annotations(str(shard), modality) for shard in shards]


def get(shards: Sequence[Path]) -> list[bytes]:
    return list(get_annotations(opened(shards)))


def put(shards: Sequence[Path], lines: Sequence[bytes], **options: bool) -> PutReport:
    return put_annotations(opened(shards), [line + b"\n" for line in lines], **options)


def read(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def status(place: Path) -> dict[str, tuple[int, int, int]]:
    found = {str(path.relative_to(place)): path.lstat() for path in [place, *place.rglob("*")]}
    return {name: (stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in found.items()}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "shards"


def changed(samples: Sequence[Sequence[Any]]) -> list[list[bytes]]:
    """Each a little different and of another length, but with its key."""
    return [[sample[:-1] + b', "new": "\xc3\xa9"}' for sample in stored(each)] for each in samples]


def test_get_is_what_is_stored(place: Path) -> None:
    assert get(write(place)) == [line for each in SAMPLES for line in stored(each)]


def test_what_is_several_lines_is_joined(place: Path) -> None:
    pretty = json.dumps(SAMPLES[3][0], indent=4, ensure_ascii=False)
    shards = write(place, [[pretty.encode(), b'{\r\n\t"key"\n:\r"\\n"  }\n', b'{"n": 1.50,\n "n": "\xe2\x80\xa8"}']])
    lines = get(shards)
    assert json.loads(lines[0]) == SAMPLES[3][0]
    assert lines[1:] == [b'{"key":"\\n"  }', b'{"n": 1.50,"n": "\xe2\x80\xa8"}']


def test_what_was_got_and_is_put_changes_nothing(place: Path) -> None:
    shards = write(place, [*SAMPLES, [b'{\n"key":\n"pretty"\r\n}']])
    before = status(place)
    assert put(shards, get(shards)) == PutReport(0, 0, 0, 0)
    assert put_annotations(opened(shards), [line + b"\r\n" for line in get(shards)]) == PutReport(0, 0, 0, 0)
    assert status(place) == before


def test_what_is_put_is_what_would_have_been_packed(place: Path) -> None:
    shards = write(place)
    wanted = changed(SAMPLES)
    write(place.parent / "wanted", wanted)
    before = status(place)
    assert put(shards, [line for each in wanted for line in each]) == PutReport(8, 3, 0, 0)
    assert read(place) == read(place.parent / "wanted")
    after = status(place)
    for name in before:
        if name.endswith(("audio.bin", "audio.idx")):
            assert after[name][:2] == before[name][:2]
    assert os.stat(shards[0] / "audio.bin").st_nlink == 1
    assert {name for name in before if before[name] == after[name]} >= {f"000000001/{name}" for name in PAIR}


def test_only_shards_with_a_difference_are_written(place: Path) -> None:
    shards = write(place)
    before = status(place)
    lines = get(shards)
    lines[-1] = lines[-1].replace(b'"z/9"', b' "z/9" ')
    assert put(shards, lines) == PutReport(1, 1, 0, 0)
    assert get(shards) == lines
    after = status(place)
    assert {name for name in before if before[name] != after[name]} == {
        ".",
        "000000003",
        "000000003/audio.bin",  # its ctime: it had two names for a moment
        "000000003/audio.idx",
        *(f"000000003/{name}" for name in PAIR),
    }


def test_lines_belong_to_samples_by_their_keys(place: Path) -> None:
    """In any order; of one key in theirs. 7 and "7" are one key; null, "" and 1.5 are none."""
    shards = write(place)
    lines = [
        b'{"key":1.5,"t":"first without"}',
        b'{"key":"z/9"}',
        b'{"key":"a","t":"first"}',
        b'{"key":"7"}',
        b'{"key":"a","t":"second"}',
        b'{"key":"","t":"second without"}',
        b'{"key":"\\ud800"}',
        '{"key":"café"}'.encode(),
    ]
    assert put(shards, lines) == PutReport(8, 3, 0, 0)
    assert get(shards) == [lines[i] for i in (2, 3, 0, 7, 4, 6, 5, 1)]


def test_the_last_line_may_lack_its_end(place: Path) -> None:
    shards = write(place, [[{"key": "a"}]])
    assert put_annotations(opened(shards), [b'{"key": "a", "x": 1}']) == PutReport(1, 1, 0, 0)
    assert get(shards) == [b'{"key": "a", "x": 1}']


def refused(place: Path, kind: type[TouchfsError], told: str, function: Callable[[], object]) -> None:
    before = status(place)
    with pytest.raises(kind, match=told):
        function()
    assert status(place) == before


def test_lines_for_no_sample(place: Path) -> None:
    shards = write(place)
    lines = get(shards)
    lines[0] = lines[0].replace(b"one", b"two")
    more = [lines[0], b'{"key": "b"}', *lines[1:], lines[0], b'{"no": "key"}']
    told = r"lines for no sample: 3, first line 2 with the key 'b'; .* --ignore-unknown"
    refused(place, NotFoundError, told, lambda: put(shards, more))
    refused(place, NotFoundError, told, lambda: put(shards, more, keep_missing=True))
    told = "lines for no sample: 1, first line 9 with no key; "
    refused(place, NotFoundError, told, lambda: put(shards, [*lines, b"{}"]))
    assert put(shards, more, ignore_unknown=True) == PutReport(1, 1, 3, 0)
    assert get(shards) == lines


def test_samples_without_a_line(place: Path) -> None:
    shards = write(place)
    lines = get(shards)
    new = lines[2].replace(b"nobody", b"somebody")
    told = r"000000000: samples without a line: 7, first sample 0; .* --keep-missing \(sample 'a'\)"
    refused(place, NotFoundError, told, lambda: put(shards, [new]))
    refused(place, NotFoundError, told, lambda: put(shards, [new], ignore_unknown=True))
    refused(place, NotFoundError, "samples without a line: 8", lambda: put(shards, []))
    assert put(shards, [new], keep_missing=True) == PutReport(1, 1, 0, 7)
    assert get(shards) == [*lines[:2], new, *lines[3:]]


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"key": "\xff"}', b'{"key":\x00"a"}', b"{} {}", b"[" * 9999])
def test_a_line_that_is_no_object(place: Path, line: bytes) -> None:
    shards = write(place)
    lines = changed(SAMPLES)[0]
    flags = {"ignore_unknown": True, "keep_missing": True}
    refused(place, FormatError, "^line 3: metainfo is not", lambda: put(shards, [*lines[:2], line, *lines], **flags))


@pytest.mark.parametrize("bad", [b"", b"[1]", b'{"key": "a"', b'{"key": "\xff"}', b'{"key": "a\nb"}'])
def test_a_sample_that_is_no_object(place: Path, bad: bytes) -> None:
    shards = write(place, [SAMPLES[0], [SAMPLES[3][0], bad]])
    told = r"000000001/metainfo\.bin: sample 1: metainfo is not .*\(sample '00000001'\)"
    lines = get_annotations(opened(shards))
    assert [next(lines) for _ in range(5)] == stored([*SAMPLES[0], *SAMPLES[3]])
    with pytest.raises(FormatError, match=told):
        next(lines)
    flags = {"ignore_unknown": True, "keep_missing": True}
    refused(place, FormatError, told, lambda: put(shards, changed(SAMPLES)[0], **flags))


def test_damaged_files(place: Path) -> None:
    (shard,) = shards = write(place, [SAMPLES[0]])
    size = os.path.getsize(shard / PAIR[0])
    os.truncate(shard / PAIR[0], size - 1)
    told = r"metainfo\.idx: sample 3 is damaged: metainfo\.bin ends before this sample does"
    refused(place, FormatError, told, lambda: get(shards))
    refused(place, FormatError, told, lambda: put(shards, changed(SAMPLES)[0]))
    write_modality(shard, "metainfo", INT16, [b"{}"])
    refused(place, FormatError, r"metainfo\.idx: an index of int16", lambda: get(shards))
    (shard / PAIR[1]).write_bytes(b"MMIDIDX\0\0" * 3)
    refused(place, FormatError, r"metainfo\.idx: index version", lambda: get(shards))
    (shard / PAIR[0]).unlink()
    refused(place, NotFoundError, r"metainfo\.bin: no such file", lambda: get(shards))


def test_documents_may_be_any(place: Path) -> None:
    """As those of an index of Megatron's. What is written is TouchNet's."""
    a, b = b'{"key": "a"}', b'{"key": "b"}'
    write_shard(place, metainfo=(UINT8, [a, b]))
    index = struct.pack("<9sQBQQ", b"MMIDIDX", 1, 1, 2, 2) + struct.pack("<iiqqqq", 12, 12, 0, 12, 0, 2)
    (place / PAIR[1]).write_bytes(index)
    assert get([place]) == [a, b]
    put([place], [b, b'{"key": "a" }'])
    write_shard(place.parent / "wanted", metainfo=(UINT8, [b'{"key": "a" }', b]))
    assert read(place) == read(place.parent / "wanted")


def test_samples_that_are_not_end_to_end(place: Path) -> None:
    """What lies between them is no sample that could be written again."""
    a, b = b'{"key": "a"}', b'{"key": "b"}'
    write_shard(place, metainfo=(UINT8, [a, b]))
    (place / PAIR[0]).write_bytes(a + b"____" + b)
    index = struct.pack("<9sQBQQ", b"MMIDIDX", 1, 1, 2, 2) + struct.pack("<iiqqqq", 12, 12, 0, 16, 0, 2)
    (place / PAIR[1]).write_bytes(index)
    told = "sample 0 is damaged: .*does not end where the next one begins"
    refused(place, FormatError, told, lambda: get([place]))
    refused(place, FormatError, told, lambda: put([place], [a, b]))


def test_other_files_and_names(place: Path) -> None:
    """All files of the shard are kept as they are, the index of touchfs too; and owners, modes and attributes."""
    shard = write_shard(place, pair_audio=(INT16, [b"ab"]), pair_text=(UINT8, [b"{}"]), metainfo=(UINT8, [b"other"]))
    (shard / ".hidden").write_bytes(b"x")
    os.mkfifo(shard / "pipe")  # to open it would be to wait for ever
    (shard / "link").symlink_to("pair_audio.bin")
    (shard / "nowhere").symlink_to("nowhere else")
    (shard / ".touchfs-index").mkdir()
    (shard / ".touchfs-index" / "x.arrow").write_bytes(b"index")
    os.setxattr(shard / "pair_text.bin", "user.of", b"file")
    os.setxattr(shard, "user.of", b"directory")
    modes = {"pair_text.bin": 0o640, "pair_text.idx": 0o604, ".": 0o2751}
    for name, mode in modes.items():
        if os.getuid() == 0:
            os.chown(shard / name, 1234, 2345)
        os.chmod(shard / name, mode)
    os.utime(shard / "pair_text.bin", (0, 0))
    before, owner = status(shard), os.stat(shard).st_uid
    assert put_annotations(opened([shard], "pair_text"), [b'{"a": 1}\n']) == PutReport(1, 1, 0, 0)
    for name, mode in modes.items():
        assert os.stat(shard / name).st_mode & 0o7777 == mode
        assert os.stat(shard / name).st_uid == owner
    assert os.getxattr(shard / "pair_text.bin", "user.of") == b"file"
    assert os.getxattr(shard, "user.of") == b"directory"
    after = status(shard)
    assert after["pair_text.bin"][1] >= before[".hidden"][1], "it is new"
    assert after.keys() == before.keys()
    same = {"pair_audio.bin", "pair_audio.idx", "metainfo.bin", "metainfo.idx", ".hidden", "pipe", "link", "nowhere"}
    same |= {".touchfs-index", ".touchfs-index/x.arrow"}
    assert {name for name in before if after[name][:2] == before[name][:2]} >= same
    assert (shard / "pair_text.bin").read_bytes() == b'{"a": 1}'
    assert os.listdir(place.parent) == [place.name]


def test_a_symbolic_link_to_a_shard(place: Path) -> None:
    (shard,) = write(place, [SAMPLES[3]])
    links = place.parent / "links"
    links.mkdir()
    (links / "one").symlink_to(shard)
    assert put([links / "one"], changed(SAMPLES)[3]) == PutReport(1, 1, 0, 0)
    assert (links / "one").is_symlink()
    assert get([shard]) == changed(SAMPLES)[3]
    (links / "two").symlink_to("one")
    told = "two: the shard is in the dataset twice"
    refused(place, UsageError, told, lambda: put([links / "one", links / "two"], changed(SAMPLES)[3]))


def test_what_cannot_be_written_is_refused_before_anything_is(place: Path) -> None:
    shards = write(place)
    lines = [line for each in changed(SAMPLES) for line in each]
    (shards[3] / "inner").mkdir()
    refused(place, UsageError, "000000003: holds a directory, inner", lambda: put(shards, lines))
    unchanged = [*lines[:-1], get(shards)[-1]]
    assert put(shards, unchanged) == PutReport(7, 2, 0, 0)  # only what is written has to be linked
    (place / ".touchfs-pack.json").touch()
    refused(place, UsageError, "an unfinished `touchfs pack` is here", lambda: put(shards, unchanged))


def test_a_shard_that_is_replaced_meanwhile(place: Path) -> None:
    shards = write(place, SAMPLES)
    other = write(place.parent / "other", changed(SAMPLES))

    def lines() -> Iterator[bytes]:
        yield from get(shards)
        shutil.rmtree(shards[0])
        other[0].rename(shards[0])

    reading = opened(shards)
    assert next(get_annotations(reading)) == stored(SAMPLES[0])[0]
    with pytest.raises(ChangedError, match="000000000/metainfo"):
        put_annotations(reading, lines())
    assert get(shards)[:4] == changed(SAMPLES)[0]


def test_a_task_that_is_run_again_finds_its_lines(place: Path) -> None:
    """Also where some samples keep theirs."""
    shards = write(place)
    lines = [line for each in changed(SAMPLES) for line in each[:2]]
    with Twice(2) as executor:
        report = put_annotations(opened(shards), lines, keep_missing=True, executor=executor)
    assert report == PutReport(5, 3, 0, 3)
    pairs = zip(map(stored, SAMPLES), changed(SAMPLES), strict=True)
    assert get(shards) == [line for old, new in pairs for line in new[:2] + old[2:]]


@pytest.mark.usefixtures("impatient")
def test_one_put_at_a_time(place: Path) -> None:
    """Also of other shards in the same directory; what the other has made so far is left alone."""
    shards = write(place)
    left = place / ".touchfs-tmp-swap-0123"
    left.mkdir()
    (left / "metainfo.bin").touch()
    others = place / ".touchfs-tmp-4567"
    others.touch()
    descriptor = os.open(place, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    told = "another `touchfs meta put` is at work here: wait for it"
    refused(place, UsageError, told, lambda: put(shards[:1], get(shards[:1])))
    os.close(descriptor)
    put(shards, get(shards))
    assert not left.exists()
    assert others.exists()


def test_processes_write_the_same_bytes(place: Path, processes: Executor) -> None:
    for name, executor in (("here", None), ("processes", processes)):
        shards = write(place / name)
        lines = [line for lines in changed(SAMPLES) for line in lines]
        report = put_annotations(opened(shards), lines, executor=executor)
        assert report == PutReport(8, 3, 0, 0)
        assert put_annotations(opened(shards), lines, executor=executor) == PutReport(0, 0, 0, 0)
    assert read(place / "here") == read(place / "processes")
    with pytest.raises(NotFoundError, match="lines for no sample: 1"):
        put_annotations(opened(shards), [*lines, b"{}"], executor=processes)


keys = st.sampled_from(["a", "b", 3, "3", "ü\n", "", None, 1.5, "x" * 300])
objects = st.builds(lambda key, text: {"key": key, "txt": text}, keys, st.text(max_size=9))


@settings(max_examples=settings().max_examples // 3)
@given(st.data(), st.lists(st.lists(objects, max_size=4), min_size=1, max_size=3))
def test_any_samples_and_any_order_of_lines(tmp_path_factory: Any, data: Any, samples: list[list[Any]]) -> None:
    place = tmp_path_factory.mktemp("any")
    shards = write(place / "shards", samples)
    flat = [sample for each in samples for sample in each]
    order = data.draw(st.permutations(range(len(flat))))
    new = [flat[i] | {"line": n} for n, i in enumerate(order)]
    put(shards, [as_json(line) for line in new])

    def told(value: Any) -> str | None:
        return str(value["key"]) if type(value["key"]) is int else value["key"] if isinstance(value["key"], str) else ""

    queues: dict[str | None, list[Any]] = {}
    for line in new:
        queues.setdefault(told(line), []).append(line)
    wanted = [[queues[told(sample)].pop(0) for sample in each] for each in samples]
    write(place / "wanted", wanted)
    assert read(place / "shards") == read(place / "wanted")


VERSIONS = [
    [[as_json({"key": f"{i}-{j}", "version": v, "txt": "é" * v * (i + j)}) for j in range(8)] for i in range(6)]
    for v in range(3)
]


def pairs(version: int, place: Path) -> list[tuple[bytes, bytes]]:
    """The files of each shard, by the independent writer."""
    shards = write(place / f"version{version}", VERSIONS[version])
    return [((shard / PAIR[0]).read_bytes(), (shard / PAIR[1]).read_bytes()) for shard in shards]


def put_version(shards: Sequence[Path], version: int) -> None:
    put(shards, [line for each in VERSIONS[version] for line in each])


def check_fits(data: bytes, index: bytes) -> None:
    count, entries = struct.unpack_from("<QQ", index, 18)
    assert len(index) == 34 + 12 * count + 8 * entries
    lengths = struct.unpack_from(f"<{count}i", index, 34)
    offsets = struct.unpack_from(f"<{count}q", index, 34 + 4 * count)
    for length, offset in zip(lengths, offsets, strict=True):
        assert isinstance(json.loads(data[offset : offset + length]), dict)
    assert sum(lengths) == len(data)


def kill(operation: int, shards: Sequence[Path], version: int) -> None:
    kill_before(operation, put_version, shards, version)


def begin_and_put(begun: Event, shards: Sequence[Path], version: int) -> None:
    begun.set()
    put_version(shards, version)


def kill_at_random(moment: float, shards: Sequence[Path], version: int) -> None:
    begun = FORK.Event()
    process = FORK.Process(target=begin_and_put, args=(begun, shards, version))
    process.start()
    assert begun.wait(60)
    time.sleep(moment)
    process.kill()
    process.join()


def check_kills(place: Path, moments: Callable[[list[Path]], Iterator[Callable[[Sequence[Path], int], None]]]) -> None:
    """Kill at these moments: at `KILLS` and more, until some shards were done when it died, and something was left."""
    expected = [pairs(version, place.parent) for version in range(3)]
    shards = write(place, VERSIONS[0])
    audio = [(os.stat(shard / "audio.bin").st_ino, (shard / "audio.bin").read_bytes()) for shard in shards]
    version, some, left = 0, 0, 0
    for count, killed in enumerate(moments(shards)):
        if count >= KILLS and some and left:
            break
        wanted = (version + 1) % 3
        killed(shards, wanted)
        left += any(name.startswith(".touchfs-tmp-") for name in os.listdir(place))
        done = 0
        for i, shard in enumerate(shards):
            data, index = (shard / PAIR[0]).read_bytes(), (shard / PAIR[1]).read_bytes()
            assert (data, index) in (expected[version][i], expected[wanted][i])
            check_fits(data, index)
            done += (data, index) == expected[wanted][i]
            assert (os.stat(shard / "audio.bin").st_ino, (shard / "audio.bin").read_bytes()) == audio[i]
        some += 0 < done < len(shards)
        put_version(shards, wanted)
        version = wanted
        assert sorted(os.listdir(place)) == [shard.name for shard in shards]
        assert [((s / PAIR[0]).read_bytes(), (s / PAIR[1]).read_bytes()) for s in shards] == expected[version]
        assert [os.stat(shard / "audio.bin").st_nlink for shard in shards] == [1] * len(shards)
    assert some and left


def test_killed_before_operations(place: Path) -> None:
    """At so many of them, as far from each other as can be."""

    def moments(shards: list[Path]) -> Iterator[Callable[[Sequence[Path], int], None]]:
        put_version(shards, 2)
        count = operations(put_version, shards, 0)
        return (partial(kill, count * i // OPERATIONS) for i in range(OPERATIONS))

    check_kills(place, moments)


@pytest.mark.variant
def test_killed_at_any_moment(place: Path) -> None:
    def moments(shards: list[Path]) -> Iterator[Callable[[Sequence[Path], int], None]]:
        durations = []
        for version in (1, 2, 1, 0):
            begun = time.monotonic()
            put_version(shards, version)
            durations.append(time.monotonic() - begun)
        random_ = random.Random(5)
        while True:
            yield partial(kill_at_random, random_.uniform(0, 1.5 * min(durations)))

    check_kills(place, moments)


def put_often(shards: Sequence[Path], enough: Event) -> None:
    for i in itertools.count():
        if enough.is_set():
            return
        put_version(shards, 1 + i % 2)


@contextmanager
def putting(shards: Sequence[Path]) -> Iterator[None]:
    """Within this context, another process puts one version after the other."""
    enough = FORK.Event()
    process = FORK.Process(target=put_often, args=(shards, enough))
    process.start()
    try:
        yield
        assert process.is_alive()
    finally:
        enough.set()
        process.join()
    assert process.exitcode == 0


def test_a_reader_of_both_files_always_has_a_pair(place: Path) -> None:
    """That opens them through a descriptor of the directory, and begins anew when the directory was deleted."""
    expected = [pairs(version, place.parent) for version in range(3)]
    shards = write(place, VERSIONS[0])
    # Which version each reader had, without repetitions.
    seen: list[int] = []

    def read_pair() -> bool:
        directory = os.open(shards[0], os.O_RDONLY)  # which is there at any instant
        try:
            files = [os.open(name, os.O_RDONLY, dir_fd=directory) for name in reversed(PAIR)]
        except FileNotFoundError:
            return False
        finally:
            os.close(directory)
        index, data = (os.read(file, 1 << 20) for file in files)
        for file in files:
            os.close(file)
        found = [pair[0] for pair in expected].index((data, index))
        check_fits(data, index)
        if seen[-1:] != [found]:
            seen.append(found)
        return len(seen) > CHANGES

    with putting(shards):
        read_until(read_pair)


def test_get_while_it_is_put(place: Path) -> None:
    """All lines of a shard are of one time, or get says that the shard has changed."""
    shards = write(place, VERSIONS[0])
    seen: list[int] = []

    def read_lines() -> bool:
        try:
            found = [version[0] for version in VERSIONS].index(get(shards[:1]))
        except (ChangedError, NotFoundError, SourceError):
            return False
        if seen[-1:] != [found]:
            seen.append(found)
        return len(seen) > CHANGES

    with putting(shards):
        read_until(read_lines)


def read_until(read_once: Callable[[], bool]) -> None:
    """Read without a pause until it says that it is enough."""
    deadline = time.monotonic() + 60
    while not read_once():
        assert time.monotonic() < deadline
