"""What is written to an iterator: tokens of other mounts and of Python go on exactly, and all else is refused."""

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mounts import Mount, make_iterator, said
from touchnet import UINT8, write_modality

from touchfs import SampleSet, node
from touchfs.indexing import open_dataset
from touchfs.select.selector import Selector

COUNT, SHARDS = 12, 3
WRITABLE = ("spec", "token", "batch", "reset")


@pytest.fixture(scope="module")
def dozen(tmp_path_factory) -> Path:
    """A dataset so small that every position of it can be tried."""
    path = tmp_path_factory.mktemp("dozen") / "shards"
    lines = [json.dumps({"key": f"n{number}", "even": number % 2 == 0}).encode() for number in range(COUNT)]
    for shard in range(SHARDS):
        write_modality(path / f"{shard}", "metainfo", UINT8, lines[shard::SHARDS])
    return path


def iterator(mounted: Mount, spec: dict[str, Any], name: str = "train") -> Path:
    return make_iterator(mounted, json.dumps({"output": "key", **spec}), name)


def take(path: Path, count: int) -> list[str]:
    return [said(path, "next").strip() for _ in range(count)]


MUXED = {
    "mux": [{"weight": 2, "where": "even == true"}, {"shuffle": 3, "repeat": 2}, {"select": "samples/1"}],
    "shuffle": 7,
    "rank": 1,
    "world_size": 2,
}


@pytest.mark.parametrize("distance", [5, pytest.param(2, marks=pytest.mark.variant)])
def test_save_points_go_on_alike_in_a_fresh_mount(mount, dozen, tmp_path, distance):
    first = iterator(mount(dozen, "--state-dir", tmp_path / "state"), MUXED)
    points, told, ends = [said(first, "token")], [], 0
    while ends < 2:
        told += take(first, 1)
        ends += told[-1] == ""
        points.append(said(first, "token"))
    assert len(told) > 2 * COUNT and len(set(points)) == len(points)
    fresh = iterator(mount(dozen, "--state-dir", tmp_path / "another state", "--workers", 2, name="fresh"), MUXED)
    for number, point in [*enumerate(points)][::distance]:
        (fresh / "token").write_text(point)
        assert said(fresh, "token") == point
        following = told[number:] if number % 10 == 0 else told[number:][:4]
        assert take(fresh, len(following)) == following
    shutil.copytree(dozen, tmp_path / "copy" / "shards", copy_function=shutil.copyfile)
    copied = iterator(
        mount(tmp_path / "copy" / "shards", "--state-dir", tmp_path / "third state", name="copied"), MUXED
    )
    point = len(points) // 3
    (copied / "token").write_text(points[point])
    assert take(copied, len(told) - point) == told[point:]


Graph = Callable[[Path, str], Any]


def leaf(source: Path, survivors: str) -> Any:
    return node.LazyIndexedManifestIterator(source, True, 7)


def sharded(source: Path, survivors: str) -> Any:
    return node.LazyIndexedManifestIterator(source, True, 7, rank=2, world_size=5, partition="block", tail="pad")


def filtered(source: Path, survivors: str) -> Any:
    kept = Selector(open_dataset(os.fspath(source)), survivors).select("samples", "even == true")
    return node.LazyIndexedManifestIterator(kept, True, 7)


GRAPHS: dict[str, tuple[dict[str, Any], Graph]] = {
    "plain": ({}, lambda source, survivors: node.LazyIndexedManifestIterator(source)),
    "shuffled": ({"shuffle": 7}, leaf),
    "sharded": ({"shuffle": 7, "rank": 2, "world_size": 5, "partition": "block", "tail": "pad"}, sharded),
    "where": ({"shuffle": 7, "where": "even == true"}, filtered),
    "repeated": ({"shuffle": 7, "repeat": 2}, lambda *given: node.LazyRepeater(leaf(*given), 2)),
    "endless": ({"shuffle": 7, "repeat": True}, lambda *given: node.LazyRepeater(leaf(*given))),
    "muxed": (
        {"shuffle": 7, "mux": [{"weight": 2}, {"where": "even == true", "repeat": 3}]},
        lambda *given: node.LazyIteratorMultiplexer(
            leaf(*given), node.LazyRepeater(filtered(*given), 3), weights=[2, 1], seed=7
        ),
    ),
}


def keys(graph: Any) -> Iterator[str]:
    """Without end, and nothing once at the end of an epoch, as steps tell it."""
    while True:
        yield from (sample.key for sample in graph)
        yield ""


@pytest.mark.parametrize("distance", [5, pytest.param(2, marks=pytest.mark.variant)])
def test_tokens_are_the_states_of_python_both_ways(mount, dozen, tmp_path, distance):
    """At every position, or at some of each graph, which for all graphs are every one."""
    mounted = mount(dozen, "--state-dir", tmp_path / "state")
    for first, (name, (spec, graph_of)) in enumerate(GRAPHS.items()):
        graph = graph_of(dozen, os.fspath(tmp_path / "survivors"))
        stepped, restored = iterator(mounted, spec, name), iterator(mounted, spec, f"{name} restored")
        restoring = graph_of(dozen, os.fspath(tmp_path / "survivors"))
        ours, length = keys(graph), 2 * COUNT
        order = list(islice(keys(graph_of(dozen, os.fspath(tmp_path / "survivors"))), 3 * length))
        for position in range(length):
            if position % distance == first % distance:
                state = node.collect_state_dict(graph)
                token = said(stepped, "token")
                # A step has told the end of the pass, which the state of a graph says.
                told = {**state, "state": {field: part for field, part in state["state"].items() if field != "ended"}}
                assert json.loads(token) == {"kind": "state", **told}, (name, position)
                (restored / "token").write_text(json.dumps(state))
                assert said(restored, "token") == token
                assert take(restored, COUNT) == order[position:][:COUNT], (name, position)
                (tmp_path / "token").write_text(token)
                node.load_state(restoring, tmp_path / "token")
                assert list(islice(keys(restoring), COUNT)) == order[position:][:COUNT], (name, position)
            assert take(stepped, 1) == [next(ours)] == [order[position]]


def test_a_shuffled_sample_set_and_a_mounts_iterator_take_each_others_states(mount, dozen, tmp_path):
    mounted = mount(dozen, "--state-dir", tmp_path / "state")
    path = iterator(mounted, {"shuffle": 7, "rank": 1, "world_size": 2})
    first = take(path, 2)

    def samples() -> SampleSet:
        return SampleSet.from_file(dozen).shuffle(seed=7, rank=1, world_size=2)

    whole = [sample.key for sample in samples()]
    assert first == whole[:2]
    restored = samples()
    restored.load_state_dict(json.loads(said(path, "token")))
    assert [sample.key for sample in islice(restored, 2)] == whole[2:4]
    (path / "token").write_text(json.dumps(restored.state_dict()))
    assert take(path, 2) == whole[4:]


def test_states_of_all_ranks_go_on_as_another_number_of_ranks(mount, dozen, tmp_path):
    mounted = mount(dozen, "--state-dir", tmp_path / "state")
    old = [iterator(mounted, {"shuffle": 7, "rank": rank, "world_size": 3}, f"old{rank}") for rank in range(3)]
    told = [key for rank, path in enumerate(old) for key in take(path, rank)]
    merged = node.merge_states([json.loads(said(path, "token")) for path in old])
    for rank in range(2):
        new = iterator(mounted, {"shuffle": 7, "rank": rank, "world_size": 2}, f"new{rank}")
        (new / "token").write_text(json.dumps(merged))
        told += iter(lambda path=new: said(path, "next").strip(), "")
    assert sorted(told) == sorted(f"n{number}" for number in range(COUNT))


# Files whose texts tell all that there is to an iterator.
FACTS = ("spec", "token", "position", "len", "epoch", "batch", "peek")
START = {"shuffle": 7, "batch": 2}


def everything(path: Path) -> list[str]:
    return [said(path, file) for file in FACTS]


@pytest.fixture(scope="module")
def hostile(dozen, tmp_path_factory) -> Iterator[Path]:
    """An iterator that much is written to. Its workers are the same ones after all of that."""
    place = tmp_path_factory.mktemp("hostile")
    mounted = Mount(place / "mnt", dozen, "--state-dir", place / "state", "--workers", 2)
    try:
        processes = mounted.processes()
        path = iterator(mounted, START)
        take(path, 2)
        yield path
        assert (mounted.info()["internal_errors"], mounted.processes()) == (0, processes)
    finally:
        mounted.end()


def write_all(path: Path, file: str, pieces: list[bytes], flags: int = os.O_WRONLY, hole: int = 0) -> bool:
    """Whether all was taken. A write that is refused says why, and has changed nothing."""
    descriptor = os.open(path / file, flags)
    try:
        for piece in pieces:
            while piece:
                before = everything(path)
                try:
                    piece = piece[os.write(descriptor, piece) :]
                except OSError as error:
                    assert errno.errorcode[error.errno or 0] == "EINVAL"
                    assert everything(path) == before
                    assert said(path, "error").startswith(file)
                    return False
            if hole:
                os.lseek(descriptor, hole, os.SEEK_CUR)
        return True
    finally:
        os.close(descriptor)


def sound(start: list[str]) -> dict[str, str]:
    """A text that each file takes."""
    return {"spec": start[0], "token": start[1], "batch": "3", "reset": '{"epoch": 2}'}


def restore(path: Path, start: list[str]) -> None:
    (path / "spec").write_text(start[0])
    (path / "token").write_text(start[1])
    assert everything(path) == start


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
spoilt = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 2), st.binary(max_size=3)), min_size=1, max_size=3)
ways = st.sampled_from([os.O_WRONLY, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND, os.O_RDWR])


@st.composite
def texts(draw: st.DrawFn, right: str) -> bytes:
    """Noise, JSON of any kind, or what is right with some bytes changed, added, and taken out."""
    kind = draw(st.sampled_from(["noise", "json", "spoilt"]))
    if kind == "noise":
        return draw(st.binary(max_size=50))
    if kind == "json":
        return json.dumps(draw(values), ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    text = right.encode()
    for at, removed, added in draw(spoilt):
        at %= len(text) + 1
        text = text[:at] + added + text[at + removed :]
    return text


ODD = {
    "blanks": b" " * (1 << 21) + b"x",
    "zeros": bytes(1 << 20),
    "digits": b"1" * (1 << 20),
    "a few digits": b"1" * 5000,
    "a fraction": b"0." + b"1" * 100_000,
    "out of range": b"1e400",
    "not a number": b"NaN",
    "a string": b'"' + b"x" * (1 << 20) + b'"',
    "a long name": b'{"' + b"x" * 1_000_000 + b'": 1}',
    "many names": b"{%s}" % b",".join(b'"%d": 1' % number for number in range(50_000)),
    "a name twice": b'{"batch": 2, "batch": 3, "epoch": 1, "epoch": 1, "kind": "state", "kind": "state"}',
    "a list": b"[" + b"1," * 200_000 + b"1]",
    "deep lists": b"[" * (1 << 20),
    "deep but closed": b"[" * 200 + b"]" * 200,
    "deep objects": b'{"state":' * 100_000,
    "a deep state": b'{"kind": "state", "state": ' + b"[" * 150 + b"]" * 150 + b"}",
    "half a character": b'"\xc3',
    "half a pair": rb'{"where": "\ud800 == 1"}',
    "a byte order mark": b"\xef\xbb\xbf{}",
}


class TestWrites:
    @pytest.mark.parametrize("count", [12, pytest.param(120, marks=pytest.mark.variant)])
    def test_what_is_no_value_for_a_file_is_refused_and_changes_nothing(self, hostile, count):
        start = everything(hostile)

        @settings(max_examples=count, derandomize=True)
        @given(st.data(), st.sampled_from(WRITABLE), ways, st.sampled_from([0, 0, 1, 1 << 40]))
        def check(data, file, flags, hole):
            text = data.draw(texts(sound(start)[file]))
            cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=3).map(sorted))
            pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
            write_all(hostile, file, pieces, flags, hole)
            assert len(said(hostile, "next").splitlines()) in range(COUNT + 1)
            restore(hostile, start)

        check()

    @pytest.mark.parametrize("cuts", [15, pytest.param(150, marks=pytest.mark.variant)])
    @pytest.mark.parametrize("file", WRITABLE)
    def test_what_is_right_is_taken_in_two_pieces_cut_anywhere(self, hostile, file, cuts):
        start = everything(hostile)
        text = sound(start)[file].encode()
        for cut in range(0, len(text), 1 + len(text) // cuts):
            if file == "spec":  # one that is equal to that of the iterator keeps the position
                restore(hostile, start)
                (hostile / file).write_text('{"shuffle": 1}')
            take(hostile, 1)
            with open(hostile / file, "wb", 0) as writing:
                writing.write(text[:cut])
                # Pieces count in the order they come, and a hole between them does not.
                writing.seek(1 << 40 if cut % 2 else 0, os.SEEK_CUR)
                writing.write(text[cut:])
            changed = {"spec": "position", "token": "position", "batch": "batch", "reset": "epoch"}[file]
            assert said(hostile, changed) == {"spec": "0", "token": "4", "batch": "3", "reset": "2"}[file] + "\n"
        restore(hostile, start)

    @pytest.mark.parametrize(
        ("file", "text"),
        [
            # Each is written to one of the files, and as variants to the others.
            pytest.param(file, text, id=f"{file}-{name}", marks=[] if place % 4 == at else [pytest.mark.variant])
            for place, (name, text) in enumerate(ODD.items())
            for at, file in enumerate(WRITABLE)
        ],
    )
    def test_huge_deep_and_odd_ones(self, hostile, file, text):
        start = everything(hostile)
        taken = write_all(hostile, file, [text])
        # A text that is not whole yet is no error until it is closed; one of more than 1 MiB will never be.
        assert not taken or text == b'"\xc3'
        assert everything(hostile) == start

    @pytest.mark.parametrize(
        "command",
        [
            "sed -i s/7/8/ spec",
            "perl -pi -e s/7/8/ spec",
            "sort spec > $TMP/new && mv $TMP/new spec",
            "cp --remove-destination $TMP/8 spec",
            "install -m 644 $TMP/8 spec",
            "ln -sf $TMP/8 spec",
            "ln -f token spec",
            "mv spec spec~",
            "rm -f spec",
            "truncate -s 100 spec",
            "fallocate -l 10 spec",
            "fallocate --punch-hole -o 0 -l 10 spec",
            "touch spec new",
            ": > spec",
            ": >> spec",
            "cp /dev/null spec",
            "tee -a spec < /dev/null",
            "flock spec true",
        ],
    )
    def test_tools_that_do_not_write_into_a_file_leave_all_as_it_is(self, hostile, command, tmp_path):
        (tmp_path / "8").write_text('{"shuffle": 8}')
        start, files = everything(hostile), os.listdir(hostile)
        environment = {**os.environ, "TMP": os.fspath(tmp_path)}
        subprocess.run(["sh", "-c", command], cwd=hostile, env=environment, capture_output=True, check=False)
        assert everything(hostile) == start
        assert os.listdir(hostile) == files
