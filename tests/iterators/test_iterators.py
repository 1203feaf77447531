import json
import os
import random
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import ClassVar

import iterator_data
import numpy as np
import pytest
import soundfile
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test
from waiting import wait_until

from touchfs import node
from touchfs.core.errors import ExistsError, FullError, NotFoundError, StateError, UsageError
from touchfs.indexing import open_dataset
from touchfs.iterators import live_graph
from touchfs.iterators.iterators import Iterators
from touchfs.iterators.open_files import OpenFile, OpenFiles
from touchfs.iterators.prefetch import Prefetch
from touchfs.iterators.spec import build_graph, parse_spec, select_samples
from touchfs.node.transform.repeater import RepeaterIteration
from touchfs.select.selector import Selector
from touchfs.store.open_table import OpenTable
from touchfs.store.opens import Opens
from touchfs.store.patience import without_waiting
from touchfs.store.store import StateStore
from touchfs.store.writes import Piece


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """The source, and the paths of its samples in dataset order."""
    path = tmp_path_factory.mktemp("source") / "shards"
    return path, iterator_data.make_shards(path)


@pytest.fixture(scope="module")
def dataset(shards):
    return open_dataset(os.fspath(shards[0]), in_place=True)


def opening(iterators, store):
    return OpenFiles(iterators, Opens(store, OpenTable(), os.getpid()))


def whole(file):
    return file.read(0, 1 << 20)


def made(iterators, name="train", **spec):
    iterator = iterators.create(name)
    iterators.write(iterator, "spec", spec)
    return iterator


def epoch(iterators, iterator, file="next"):
    """What is told until the end of the epoch is told."""
    told = []
    while text := iterators.read(iterator, file):
        told += text.splitlines()
    return told


def token(iterators, iterator):
    return json.loads(iterators.read(iterator, "token"))


MUXED = {
    "mux": [
        {"select": "samples/one", "weight": 2},
        {"select": "segments", "where": 'text != "w1"', "shuffle": 3},
        {"select": "samples", "where": 'info.lang == "en"', "repeat": 2},
    ],
    "shuffle": 7,
    "rank": 1,
    "world_size": 2,
    "output": "key",
}


class TestSteps:
    def test_all_samples_in_order_and_an_end_and_again(self, iterators, shards):
        iterator = iterators.create("train")
        for _ in range(3):
            assert epoch(iterators, iterator) == shards[1]

    @pytest.mark.parametrize("batch", [1, 2, 5, 22, 23, 24, 1000])
    def test_a_batch_ends_with_the_epoch(self, iterators, shards, batch):
        iterator = made(iterators, batch=batch)
        texts = [iterators.read(iterator, "next") for _ in range(-(-23 // batch))]
        assert [text.count("\n") for text in texts] == [min(batch, 23 - at) for at in range(0, 23, batch)]
        assert "".join(texts).splitlines() == shards[1]
        assert (iterators.read(iterator, "position"), iterators.read(iterator, "epoch")) == ("23\n", "0\n")
        assert iterators.read(iterator, "peek") == iterators.read(iterator, "next") == ""
        assert (iterators.read(iterator, "position"), iterators.read(iterator, "epoch")) == ("0\n", "1\n")

    def test_epochs_are_shuffled_as_the_python_api_does(self, iterators, shards, dataset):
        iterator = made(iterators, shuffle=7, batch=4)
        graph = node.LazyIndexedManifestIterator(dataset, True, 7)
        epochs = [epoch(iterators, iterator) for _ in range(3)]
        assert epochs == [[sample.path("wav") for sample in graph] for _ in range(3)]
        assert epochs[0] != epochs[1] and all(sorted(told) == sorted(shards[1]) for told in epochs)

    def test_ranks_share_an_epoch(self, iterators, shards):
        ranks = [made(iterators, f"rank{rank}", shuffle=1, rank=rank, world_size=8, batch=2) for rank in range(8)]
        for _ in range(2):
            assert sorted(path for rank in ranks for path in epoch(iterators, rank)) == sorted(shards[1])

    def test_repeats_go_on(self, iterators, shards):
        iterator = made(iterators, repeat=3, batch=7)
        assert epoch(iterators, iterator) == shards[1] * 3
        endless = made(iterators, "endless", repeat=True, batch=100)
        assert iterators.read(endless, "next").splitlines() == (shards[1] * 5)[:100]
        assert (iterators.read(endless, "epoch"), iterators.read(endless, "position")) == ("4\n", "8\n")
        assert iterators.read(endless, "len") == "23\n"

    @pytest.mark.parametrize("batch", [1, 4, 70])
    def test_processes_in_turn_share_one_pass(self, iterators, store, dataset, batch):
        with closing(StateStore(store.path)) as another:
            each = [iterators, Iterators(store, dataset), Iterators(another, dataset)]
            iterator = made(iterators, shuffle=7, batch=batch)
            alone = made(iterators, "alone", shuffle=7, batch=batch)
            dice = random.Random(5)
            for _ in range(60):
                turn = dice.choice(each)
                if not dice.randrange(5):
                    assert turn.read(iterator, "peek") == iterators.read(alone, "peek")
                assert turn.read(iterator, "next") == iterators.read(alone, "next")
                assert token(turn, iterator) == token(iterators, alone)

    def test_outputs(self, store, dataset, shards):
        iterators = Iterators(store, dataset, "/mnt/speech")
        iterator = made(iterators, batch=23)
        assert iterators.read(iterator, "peek").splitlines() == [f"/mnt/speech/{path}" for path in shards[1]]
        iterators.write(iterator, "spec", {"batch": 23, "output": "relpath"})
        assert iterators.read(iterator, "peek").splitlines() == shards[1]
        iterators.write(iterator, "spec", {"batch": 23, "output": "key"})
        keys = iterators.read(iterator, "peek").splitlines()
        assert keys == [re.sub("shards/[a-z]*/(.*).wav", r"\1", path) for path in shards[1]]
        iterators.write(iterator, "spec", {"batch": 23, "output": "json"})
        told = [json.loads(line) for line in iterators.read(iterator, "peek").splitlines()]
        assert [each["files"]["wav"] for each in told] == shards[1]
        assert [each["key"] for each in told] == keys

    def test_the_file_of_a_path_is_chosen_by_its_extension(self, iterators, shards):
        texts = [path.replace(".wav", ".json") for path in shards[1]]
        iterator = made(iterators, batch=7)
        assert iterators.read(iterator, "next").splitlines() == shards[1][:7]
        iterators.write(iterator, "spec", {"batch": 23, "extension": "json"})  # and the position is kept
        assert iterators.read(iterator, "next").splitlines() == texts[7:]
        iterators.write(iterator, "spec", {"shuffle": 3, "extension": "png"})
        for _ in range(2):
            with pytest.raises(UsageError, match=r"no file \.png: there are .*; where size\.png exists leaves such"):
                iterators.read(iterator, "next")
        with pytest.raises(UsageError, match="extension chooses a path, and output is key: leave out one of them"):
            iterators.write(iterator, "spec", {"extension": "json", "output": "key"})

    def test_segments_and_merged_ones(self, iterators, dataset):
        parts = [number % 4 for number in range(23)]
        assert iterators.read(made(iterators, "s", select="segments"), "len") == f"{sum(parts)}\n"
        merged = made(iterators, "m", select="merged/gap=9.0,max=30", batch=100)
        told = iterators.read(merged, "next").splitlines()
        assert len(told) == sum(map(bool, parts))
        assert all(re.fullmatch(r"merged/max=30,gap=9/\w+/talk\d/\d+/0000.wav", path) for path in told)

    def test_what_is_below_a_path(self, iterators, shards):
        for source, start in [
            ("samples/two", "shards/two/"),
            ("samples/three/talk1", "shards/three/talk1/"),
            ("shards/one/talk0/006.wav", "shards/one/talk0/006.wav"),
        ]:
            iterator = made(iterators, source.replace("/", "_"), select=source, batch=9)
            wanted = [path for path in shards[1] if path.startswith(start)]
            assert epoch(iterators, iterator) == wanted
            assert iterators.read(iterator, "len") == f"{len(wanted)}\n"

    @pytest.mark.parametrize(
        ("where", "holds"),
        [
            ('info.lang == "de"', lambda number: number % 2),
            ("segment == 0 and ordinal < 3", lambda number: number in (0, 1, 2, 7, 8, 9, 18, 19, 20)),
            ("duration > 0.2", lambda number: 100 + 80 * number > 1600),
            ('key contains "talk1" and not shard == "two"', lambda number: number % 3 == 1 and number < 18),
            ("size.wav <= 204", lambda number: 44 + 2 * (100 + 80 * number) <= 204),
        ],
    )
    def test_a_filter_keeps_what_matches(self, iterators, shards, where, holds):
        iterator = made(iterators, where=where, batch=5)
        wanted = [path for number, path in enumerate(shards[1]) if holds(number)]
        assert epoch(iterators, iterator) == wanted
        assert iterators.read(iterator, "len") == f"{len(wanted)}\n"

    @pytest.mark.parametrize("form", ["wav", "flac"])
    def test_a_filter_by_the_duration_of_recordings_in_a_tar(self, store, tmp_path, form):
        with tarfile.open(tmp_path / "x.tar", "w") as tar:
            for number in range(8):
                soundfile.write(tmp_path / f"{number}.{form}", np.zeros(1000 * number + 1), 8000)
                tar.add(tmp_path / f"{number}.{form}", f"./{number}.{form}")
            (tmp_path / "unknown.mp3").write_bytes(b"ID3")
            tar.add(tmp_path / "unknown.mp3", "./unknown.mp3")
        iterators = Iterators(store, open_dataset(str(tmp_path / "x.tar"), in_place=True), "/mnt")
        assert epoch(iterators, made(iterators, where="duration > 0.6", output="key")) == ["./5", "./6", "./7"]
        known = epoch(iterators, made(iterators, "all", where="duration exists", output="key"))
        assert known == [f"./{number}" for number in range(8)]

    def test_no_samples_is_an_epoch_that_ends(self, iterators):
        iterator = made(iterators, where='key == "nobody"')
        assert [iterators.read(iterator, file) for file in ("next", "len", "next", "epoch")] == ["", "0\n", "", "2\n"]
        forever = made(iterators, "forever", where='key == "nobody"', repeat=True)
        assert iterators.read(forever, "next") == ""


class TestStates:
    def test_every_save_point_goes_on_alike_in_another_store(self, iterators, dataset, tmp_path):
        iterator = made(iterators, **MUXED)
        points, told = [token(iterators, iterator)], []
        ends = 0
        while ends < 2:
            text = iterators.read(iterator, "next")
            ends += not text
            told.append(text)
            points.append(token(iterators, iterator))
        assert len(told) > 40
        with closing(StateStore(os.fspath(tmp_path / "elsewhere" / "store.sqlite"))) as elsewhere:
            others = Iterators(elsewhere, dataset)
            other = made(others, "other", **MUXED)
            for number, point in enumerate(points):
                others.write(other, "token", point)
                assert token(others, other) == point
                assert [others.read(other, "next") for _ in told[number:]] == told[number:]

    def test_the_python_api_has_the_same_states(self, iterators, dataset, tmp_path):
        spec = parse_spec(MUXED)
        graph = build_graph(spec, select_samples(spec, Selector(dataset, os.fspath(tmp_path))))
        iterator = made(iterators, **MUXED)
        samples = iter(graph)
        for _ in range(11):
            assert iterators.read(iterator, "next") == f"{next(samples).key}\n"
            state = {"kind": "state", **node.collect_state_dict(graph)}
            assert token(iterators, iterator) == state
        file = tmp_path / "token"
        file.write_text(iterators.read(iterator, "token"))
        wanted = epoch(iterators, iterator)
        node.load_state(graph, file)
        assert [sample.key for sample in graph] == wanted
        node.load_state(graph, file)
        iterators.write(iterator, "token", node.collect_state_dict(graph))
        assert epoch(iterators, iterator) == wanted

    def test_a_state_has_one_line_of_at_most_4_kib(self, iterators):
        parts = [{"select": "samples", "repeat": 3, "shuffle": 1 << 62}] * 7
        iterator = made(iterators, mux=parts, batch=100, rank=9, world_size=10)
        for _ in range(5):
            iterators.read(iterator, "next")
            text = iterators.read(iterator, "token")
            assert len(text) <= 4096 and text.endswith("\n") and text.count("\n") == 1
        with pytest.raises(UsageError, match="4096 bytes: mux fewer"):
            iterators.write(iterator, "spec", {"mux": parts * 3})

    def test_other_ranks_go_on_from_merged_states(self, iterators, shards):
        told, states = [], []
        for rank in range(3):
            iterator = made(iterators, f"old{rank}", shuffle=1, rank=rank, world_size=3)
            told += [iterators.read(iterator, "next") for _ in range(rank + 2)]
            states.append(token(iterators, iterator))
        merged = node.merge_states(states)
        left = 23
        for rank in range(2):
            iterator = made(iterators, f"new{rank}", shuffle=1, rank=rank, world_size=2)
            iterators.write(iterator, "token", merged)
            length = int(iterators.read(iterator, "len"))
            rest = epoch(iterators, iterator)
            assert len(rest) == length
            left -= length
            told += rest
        assert left == 9
        assert sorted(map(str.strip, told)) == sorted(shards[1])

    def test_of_another_spec_or_dataset_is_refused(self, iterators, store, tmp_path):
        iterator = made(iterators, shuffle=7, rank=1, world_size=4)
        iterators.read(iterator, "next")
        before = token(iterators, iterator)
        iterator_data.make_shards(tmp_path / "more")
        (tmp_path / "more" / "one").rename(tmp_path / "more" / "two2")
        others = Iterators(store, open_dataset(os.fspath(tmp_path / "more"), in_place=True))
        for name, spec, where in [
            ("seed", {"shuffle": 8, "rank": 1, "world_size": 4}, iterators),
            ("rank", {"shuffle": 7, "rank": 2, "world_size": 4}, iterators),
            ("length", {"shuffle": 7, "rank": 1, "world_size": 4, "select": "samples/one"}, iterators),
            ("graph", {"shuffle": 7, "rank": 1, "world_size": 4, "repeat": True}, iterators),
            ("fingerprint", {"shuffle": 7, "rank": 1, "world_size": 4}, others),
        ]:
            other = made(where, f"other {name}", **spec)
            where.read(other, "next")
            kept = token(where, other)
            with pytest.raises(UsageError, match=name):
                where.write(other, "token", before)
            assert name in where.read(other, "error")
            assert token(where, other) == kept

    def test_a_batch_tells_the_paths_that_single_steps_tell(self, iterators):
        for number, spec in enumerate(
            [
                {"shuffle": 7, "mux": [{"select": "samples"}, {"select": "segments", "weight": 3}], "repeat": 2},
                {"select": "segments", "repeat": True},
                {"where": "ordinal >= 2", "shuffle": 3},
                {"select": "samples/two", "repeat": 3},
            ]
        ):
            one = made(iterators, f"one {number}", **spec)
            many = made(iterators, f"many {number}", **spec, batch=29)
            told = [iterators.read(one, "next") for _ in range(100)]
            in_batches = "".join(iterators.read(many, "next") for _ in range(4))
            assert in_batches.startswith("".join(told)[: len(in_batches)])
            assert len(in_batches.splitlines()) > 20

    def test_a_step_that_fails_half_way_is_made_again(self, iterators, monkeypatch):
        monkeypatch.setattr(live_graph, "_BLOCK", 8)
        iterator = made(iterators, shuffle=7, batch=4, repeat=True)
        wanted = [iterators.read(iterator, "next") for _ in range(12)]
        iterators.write(iterator, "reset", 1)
        take, calls = RepeaterIteration.take, []

        def failing(self, count):
            taken = take(self, count)
            calls.append(count)
            if len(calls) % 3 == 0:
                raise MemoryError
            return taken

        monkeypatch.setattr(RepeaterIteration, "take", failing)
        told = []
        while len(told) < 12:
            with suppress(MemoryError):
                told.append(iterators.read(iterator, "next"))
        assert told == wanted

    def test_a_step_is_few_calls(self, iterators, store):
        """Opening, reading and releasing `next`: each call of ours takes about a microsecond."""
        files = opening(iterators, store)
        iterator = made(iterators, shuffle=7, repeat=True)
        names: list[str] = []

        def count(frame, event, argument):
            if event == "call" and frame.f_globals.get("__name__", "").startswith("touchfs"):
                names.append(frame.f_code.co_qualname)

        for is_counted in (False, False, False, True):
            sys.setprofile(count if is_counted else None)
            try:
                opened = files.open(iterator, "next")
                assert opened.read_nowait(0, 4096)
                assert opened.release() is None
            finally:
                sys.setprofile(None)
        assert len(names) <= 60, names

    def test_a_large_batch_is_not_for_who_must_not_wait(self, iterators, store):
        files = opening(iterators, store)
        iterator = made(iterators, batch=65)
        wanted = iterators.read(iterator, "peek")
        opened = files.open(iterator, "next")
        assert opened.read_nowait(0, 1 << 20) is None
        assert iterators.read(iterator, "position") == "0\n"
        assert whole(opened).decode() == wanted

    def test_what_comes_next_is_prefetched_while_others_may_step(self, store, dataset):
        """A prefetch may compute a whole block, and start threads."""
        told = []

        class Following(Prefetch):
            def follow(self, graph):
                told.append(without_waiting(others.read, iterator, "next"))

        with closing(StateStore(store.path)) as other:
            others, iterators = Iterators(other, dataset), Iterators(store, dataset, prefetch=Following(1))
            iterator = made(iterators)
            same = made(iterators, "same", batch=4)
            first = iterators.read(iterator, "next")
            third = whole(opening(iterators, store).open(iterator, "next")).decode()
            assert first + told[0] + third + told[1] == others.read(same, "next")

    @pytest.mark.parametrize("steps", range(1, 10))
    def test_another_process_writes_the_batch_where_a_block_may_end(
        self, iterators, store, dataset, shards, monkeypatch, steps
    ):
        """There, the position stays as it is."""
        monkeypatch.setattr(live_graph, "_BLOCK", 4)
        iterator, files = made(iterators), opening(iterators, store)
        for _ in range(steps):
            iterators.read(iterator, "next")
        Iterators(store, dataset).write(iterator, "batch", 2)
        assert whole(files.open(iterator, "next")).decode().splitlines() == shards[1][steps : steps + 2]
        assert iterators.read(iterator, "position") == f"{steps + 2}\n"

    def test_why_an_open_of_next_fails_is_told(self, iterators, store, tmp_path):
        iterator = made(iterators, shuffle=7)
        iterators.read(iterator, "next")
        iterator_data.make_shards(tmp_path / "more")
        (tmp_path / "more" / "one").rename(tmp_path / "more" / "two2")
        others = Iterators(store, open_dataset(os.fspath(tmp_path / "more"), in_place=True))
        with pytest.raises(UsageError, match=r"the dataset has changed since.* in epoch 0, at the state \{"):
            whole(opening(others, store).open(iterator, "next"))
        assert others.read(iterator, "error").startswith("next: the dataset has changed since")

    @pytest.mark.parametrize(("column", "value"), [("steps", "abc"), ("steps", 1.5), ("base", b"\xff")])
    def test_a_position_of_other_types_is_damaged(self, iterators, store, column, value):
        """A column of SQLite has values of any type."""
        iterator = made(iterators)
        store.run(lambda connection: connection.execute(f"UPDATE iterator SET {column} = ?", (value,)))
        with pytest.raises(UsageError, match="its position is damaged: writing 1 to reset starts it again"):
            iterators.read(iterator, "next")

    def test_a_name_of_another_type_is_not_one_of_ours(self, iterators, store):
        iterator = made(iterators)
        store.run(lambda connection: connection.execute("UPDATE iterator SET name = 'text'"))
        assert iterators.names() == []
        assert iterators.name_of(iterator) is None

    def test_a_filter_sees_what_was_edited(self, tmp_path):
        """Also where every file has the size it had."""
        source, store = tmp_path / "lines.jsonl", tmp_path / "state" / "store.sqlite"
        spec = {"where": 'label == "a"', "output": "key"}
        for labels, wanted in [("aba", ["0", "2"]), ("baa", ["1", "2"])]:
            lines = [f'{{"id": "{number}", "label": "{label}"}}\n' for number, label in enumerate(labels)]
            source.write_text("".join(lines))
            with closing(StateStore(os.fspath(store))) as opened:
                iterators = Iterators(opened, open_dataset(os.fspath(source), in_place=True))
                iterator = made(iterators, labels, **spec)
                assert [iterators.read(iterator, "next").strip() for _ in wanted] == wanted
                if labels == "aba":
                    before = token(iterators, iterator)
                else:
                    with pytest.raises(UsageError, match="fingerprint"):
                        iterators.write(iterator, "token", before)

    @pytest.mark.parametrize("file", ["token", "reset", "spec"])
    def test_an_iterator_over_a_dataset_that_was_changed_can_go_on(self, iterators, store, tmp_path, file):
        iterator = made(iterators, shuffle=7)
        iterators.read(iterator, "next")
        iterator_data.make_shards(tmp_path / "more")
        (tmp_path / "more" / "one").rename(tmp_path / "more" / "two2")
        others = Iterators(store, open_dataset(os.fspath(tmp_path / "more"), in_place=True))
        with pytest.raises(UsageError, match="fingerprint"):
            others.read(iterator, "next")
        assert "fingerprint" in others.read(iterator, "error")
        fresh = made(others, "fresh", shuffle=7)
        wanted = others.read(fresh, "peek")
        value = {"token": token(others, fresh), "reset": 1, "spec": {"shuffle": 7}}[file]
        others.write(iterator, file, value)
        assert others.read(iterator, "next") == wanted
        assert others.read(iterator, "error") == ""

    @pytest.mark.parametrize(
        "value",
        [
            *(None, 1, [], {}, "state", {"kind": "state"}, {"kind": "item"}, {"kind": 7}, {"touchfs_state": 1}),
            {"touchfs_state": 1, "kind": "item"},
            {"touchfs_state": 2, "graph": "LazyIndexedManifestIterator", "state": {}},
            {"touchfs_state": 1, "graph": "LazyIndexedManifestIterator", "state": {"node": {}}},
        ],
    )
    def test_what_is_no_token_is_refused(self, iterators, value):
        iterator = made(iterators)
        with pytest.raises(UsageError) as caught:
            iterators.write(iterator, "token", value)
        assert iterators.read(iterator, "error") == f"token: {caught.value}\n"


class TestItemTokens:
    @pytest.mark.parametrize(
        "spec",
        [
            {},
            {"shuffle": 7},
            {"shuffle": 7, "select": "segments"},
            {"where": 'info.lang == "en"'},
            {"shuffle": 7, "repeat": True},
            {"select": "merged/max=30,gap=9"},
        ],
    )
    def test_it_comes_next_and_all_after_it_follow(self, iterators, spec):
        iterator = made(iterators, output="json", **spec)
        for _ in range(2 if "repeat" in spec else 25):
            iterators.read(iterator, "next")
        length = int(iterators.read(iterator, "len"))
        state = token(iterators, iterator)
        told = [json.loads(line) for _ in range(length) for line in iterators.read(iterator, "next").splitlines()]
        for number in range(0, len(told), 5):
            iterators.write(iterator, "token", state)
            iterators.write(iterator, "token", told[number]["token"])
            assert json.loads(iterators.read(iterator, "next")) == told[number]

    def test_one_that_does_not_come_is_refused(self, iterators):
        all_of_them = made(iterators, "all", output="json", batch=23)
        tokens = [json.loads(line)["token"] for line in iterators.read(all_of_them, "next").splitlines()]
        for name, spec, why in [
            ("rank", {"rank": 1, "world_size": 2}, "not one of rank 1 of 2"),
            ("filter", {"where": 'info.lang == "de"'}, "not in what the iterator selects"),
            ("path", {"select": "samples/one"}, "not in what the iterator selects"),
            ("view", {"select": "segments"}, "goes over segments"),
            ("mux", {"mux": [{}, {}]}, "several sources"),
        ]:
            iterator = made(iterators, name, **spec)
            with pytest.raises(UsageError, match=why):
                iterators.write(iterator, "token", tokens[18])
        iterator = made(iterators)
        for field, value in [
            ("fingerprint", "other"),
            ("shard", "none"),
            ("ordinal", 1000),
            ("ordinal", -1),
            ("segment", 1),
            ("ordinal", True),
            ("source", ["samples"]),
        ]:
            with pytest.raises(UsageError):
                iterators.write(iterator, "token", {**tokens[18], field: value})
        assert iterators.read(iterator, "position") == "0\n"


class TestSpecs:
    @pytest.mark.parametrize(
        ("spec", "why"),
        [
            ([], "spec is a JSON object, not"),
            ({"shufle": 7}, "spec: there is no 'shufle': there are select, where, shuffle"),
            ({"shuffle": "7"}, "spec.shuffle is an integer from 0"),
            ({"shuffle": True}, "spec.shuffle is an integer from 0"),
            ({"shuffle": -1}, "spec.shuffle is an integer from 0"),
            ({"repeat": 0}, "spec.repeat is an integer from 1"),
            ({"rank": 8, "world_size": 8}, "no rank 8 of 8"),
            ({"rank": 1}, "no rank 1 of 1"),
            ({"partition": "strides"}, "spec.partition is one of stride, block, batches, not 'strides'"),
            ({"tail": ["keep"]}, "spec.tail is one of keep, drop, pad"),
            ({"partition": "batches"}, "give global_batch"),
            ({"global_batch": 8}, "not of 'stride'"),
            ({"partition": "batches", "global_batch": 9, "world_size": 2}, "take 8 or 10"),
            ({"partition": "batches", "global_batch": "9"}, "spec.global_batch is an integer from 1"),
            ({"partition": "batches", "global_batch": 4, "mux": [{}]}, "no batches of what is drawn"),
            ({"window": 8}, "shuffle, too"),
            ({"max_duration": 0}, "spec.max_duration is a number above 0"),
            ({"max_duration": "60"}, "spec.max_duration is a number above 0"),
            ({"max_tokens": 8.5}, "spec.max_tokens is an integer from 1 on"),
            ({"max_duration": 60, "max_tokens": 8}, "give max_duration or max_tokens"),
            ({"pack": True}, "give max_duration or max_tokens"),
            ({"max_duration": 60, "pack": 1}, "spec.pack is true or false"),
            ({"max_duration": 60, "partition": "block"}, "batches by length are no block"),
            ({"max_duration": 60, "global_batch": 8}, "not of 'stride'"),
            ({"max_duration": 60, "mux": [{}, {}]}, "give the weights of the mux as weights"),
            ({"max_duration": 60, "shuffle": 7, "window": 4, "lanes": 2}, "leave out lanes"),
            ({"max_duration": 0.001}, "and a batch at most 0.001: give a larger max_duration, or leave such"),
            ({"max_tokens": 8}, "sample 0 has no length in tokens that the index knows"),
            ({"mux": [{}, {}], "weights": [1]}, "a weight for each source"),
            ({"mux": [{}, {}], "weights": [1, 0]}, "source 1 of the mixture has the weight 0: leave it out"),
            ({"mux": [{}, {}], "weights": [1, -1]}, "a weight is a finite number of 0 or more, not -1"),
            ({"mux": [{}, {}], "weights": [1, "1"]}, "a weight is a finite number of 0 or more, not '1'"),
            ({"mux": [{}, {}], "weights": {"5": [1, 1]}}, "the first ones from 0"),
            ({"mux": [{}, {}], "weights": {"0": 1}}, "spec.weights is a list of weights, or an object such as"),
            ({"mux": [{}, {}], "weights": {"-1": [1, 1]}}, "spec.weights is a list of weights, or an object such as"),
            ({"mux": [{"weight": 2}, {}], "weights": [1, 1]}, "leave out their weight and repeat"),
            ({"weights": [1]}, "a weight for each source"),
            ({"mux": [{}, {}], "end": "stop"}, "give weights, too"),
            ({"mux": [{}, {}], "by": "tokens"}, "give weights, too"),
            ({"mux": [{}, {}], "weights": [1, 1], "by": "samples"}, "spec.by is seconds or tokens, not 'samples'"),
            ({"mux": [{}, {}], "weights": [1, 1], "by": "tokens"}, "of the mixture has no length in tokens that the"),
            ({"mux": [{}, {"where": "ordinal > 1000"}], "weights": [1, 1]}, "a source of a mixture is empty"),
            ({"window": "8X", "shuffle": 7}, "not a size: '8X'"),
            ({"window": 0.5, "shuffle": 7}, "spec.window is a number of samples from 1 on, or a size"),
            ({"lanes": 2, "shuffle": 7}, "give a window, too"),
            ({"window": 2, "lanes": 3, "shuffle": 7}, "2 are too few for 3"),
            ({"batch": 0}, "spec.batch is an integer from 1"),
            ({"batch": 2.0}, "spec.batch is an integer from 1"),
            ({"output": "paths"}, "spec.output is one of path, relpath, key, json, not 'paths'"),
            ({"select": 7}, "spec.select is a string"),
            ({"mux": [{"select": None}]}, r"spec.mux\[0\].select is a string"),
            ({"select": "sample"}, "there is no 'sample'"),
            ({"select": "samples", "source": "samples"}, "there is no 'source'"),
            ({"select": "samples", "mux": [{}]}, "select belongs to the sources of a mux"),
            ({"select": "samples/none"}, "there is no shard 'none'"),
            ({"select": "samples/one/none"}, "there is no 'one/none'"),
            ({"select": "merged/max=-1"}, "max"),
            ({"where": "duration >"}, "where, column 11: expected"),
            ({"where": "nobody == 1"}, "no sample has the field nobody"),
            ({"where": 7}, "spec.where is a string"),
            ({"mux": {}}, "spec.mux is a list"),
            ({"mux": [{}, {"weight": 0}]}, r"spec.mux\[1\].weight is a number above 0"),
            ({"mux": [{}, {"weight": 10**400}]}, r"spec.mux\[1\].weight is a number above 0"),
            ({"mux": [{}, {"mux": []}]}, r"spec.mux\[1\]: there is no 'mux'"),
            ({"mux": [{}], "where": "ordinal == 1"}, "where belongs to the sources of a mux"),
        ],
    )
    def test_a_bad_one_says_why_and_changes_nothing(self, iterators, spec, why):
        iterator = made(iterators, shuffle=7, batch=2)
        iterators.read(iterator, "next")
        before = [iterators.read(iterator, file) for file in ("spec", "token", "batch")]
        with pytest.raises(UsageError, match=why):
            iterators.write(iterator, "spec", spec)
        error = iterators.read(iterator, "error")
        assert error.startswith("spec") and re.search(why, error)
        assert [iterators.read(iterator, file) for file in ("spec", "token", "batch")] == before
        iterators.write(iterator, "batch", 3)
        assert iterators.read(iterator, "error") == ""

    def test_what_is_read_can_be_written(self, iterators):
        for name, spec in [("plain", {}), ("muxed", MUXED), ("cut", {"select": "segments/two", "repeat": True})]:
            iterator = made(iterators, name, **spec)
            text = iterators.read(iterator, "spec")
            iterators.write(iterator, "spec", json.loads(text))
            assert iterators.read(iterator, "spec") == text

    @pytest.mark.parametrize(
        ("spec", "again"),
        [
            ({"shuffle": 7}, {"shuffle": 7}),
            ({"shuffle": 7}, {"tail": "keep", "shuffle": 7, "batch": 1, "repeat": False}),
            ({"shuffle": 7, "batch": 3}, {"shuffle": 7, "batch": 3, "output": "key"}),
            ({"shuffle": 7, "batch": 3}, {"shuffle": 7, "batch": 5, "output": "json"}),
            ({"shuffle": 7, "batch": 5}, {"shuffle": 7}),
            ({"shuffle": 7, "window": 5}, {"window": 5, "shuffle": 7, "lanes": 1, "global_batch": None, "batch": 2}),
            ({"where": "ordinal>2", "repeat": True}, {"where": "(ordinal > 2)", "repeat": True, "batch": 2}),
            (MUXED, {**MUXED, "batch": 4}),
        ],
    )
    @pytest.mark.parametrize("steps", [0, 1, 7])
    def test_a_spec_that_goes_over_the_same_samples_keeps_the_position(self, iterators, spec, again, steps):
        iterator = made(iterators, **spec)
        for _ in range(steps):
            iterators.read(iterator, "next")
        before = token(iterators, iterator), iterators.read(iterator, "position")
        iterators.write(iterator, "spec", again)
        assert (token(iterators, iterator), iterators.read(iterator, "position")) == before
        follow = made(iterators, "follow", **again)
        iterators.write(follow, "token", before[0])
        for _ in range(5):
            assert iterators.read(iterator, "next") == iterators.read(follow, "next")

    @pytest.mark.parametrize(
        "again",
        [{"shuffle": 8}, {}, {"shuffle": 7, "world_size": 2}, {"shuffle": 7, "repeat": 1}, {"select": "segments"}],
    )
    def test_a_spec_that_goes_over_others_begins_at_the_start(self, iterators, again):
        iterator = made(iterators, shuffle=7, repeat=True)
        for _ in range(3):
            iterators.read(iterator, "next")
        iterators.write(iterator, "spec", again)
        assert iterators.read(iterator, "position") == "0\n"
        assert iterators.read(iterator, "peek") == iterators.read(made(iterators, "fresh", **again), "peek")

    def test_batch_and_reset(self, iterators, shards):
        iterator = made(iterators, shuffle=7)
        first = [iterators.read(iterator, "next") for _ in range(10)]
        iterators.write(iterator, "batch", 3)
        assert (iterators.read(iterator, "batch"), iterators.read(iterator, "position")) == ("3\n", "10\n")
        assert json.loads(iterators.read(iterator, "spec"))["batch"] == 3
        assert iterators.read(iterator, "next").count("\n") == 3
        for value in (0, 2, "1", None, {"epoch": -1}, {"epoch": 1, "batch": 1}, {"epoch": True}):
            with pytest.raises(UsageError, match="reset takes"):
                iterators.write(iterator, "reset", value)
        assert iterators.read(iterator, "position") == "13\n"
        iterators.write(iterator, "reset", 1)
        assert iterators.read(iterator, "next") == "".join(first[:3])
        iterators.write(iterator, "reset", {"epoch": 5})
        assert (iterators.read(iterator, "epoch"), iterators.read(iterator, "position")) == ("5\n", "0\n")
        assert sorted(epoch(iterators, iterator)) == sorted(shards[1])

    def test_what_cannot_be_written(self, iterators):
        iterator = made(iterators)
        for file in ("next", "peek", "len", "nothing"):
            with pytest.raises(UsageError, match="cannot be written"):
                iterators.write(iterator, file, 1)
        with pytest.raises(NotFoundError):
            iterators.read(iterator, "nothing")


class TestNames:
    def test_made_listed_removed(self, iterators):
        one, two = iterators.create("one"), iterators.create("zwei ü")
        assert iterators.names() == ["one", "zwei ü"]
        assert (iterators.find("zwei ü"), iterators.name_of(two), iterators.find("three")) == (two, "zwei ü", None)
        iterators.remove("one")
        assert iterators.find("one") is None
        with pytest.raises(NotFoundError, match="removed"):
            iterators.read(one, "next")
        assert iterators.create("one") > two, "never again the same number"

    @pytest.mark.parametrize("name", ["", ".", "..", "README", "a/b", "a\nb", "\udcff", "x" * 256, "\x7f"])
    def test_bad_ones_are_refused(self, iterators, name):
        with pytest.raises(UsageError, match=r"called|UTF-8"):
            iterators.create(name)

    def test_a_request_that_comes_twice_finds_it_done(self, iterators, store):
        one = iterators.create("one", "0:77")
        assert iterators.create("one", "0:77") == one
        for other in ("0:78", ""):
            with pytest.raises(ExistsError):
                iterators.create("one", other)
        iterators.remove("one", "0:79")
        iterators.remove("one", "0:79")
        with pytest.raises(NotFoundError):
            iterators.remove("one", "0:77")
        with store.transaction() as connection:
            connection.execute("UPDATE removed_iterator SET removed = removed - 61")
        with pytest.raises(NotFoundError):
            iterators.remove("one", "0:79")
        iterators.create("one", "0:77")
        with store.transaction() as connection:
            connection.execute("UPDATE iterator SET made = made - 61")
        with pytest.raises(ExistsError):
            iterators.create("one", "0:77")


class TestOpens:
    @pytest.fixture
    def files(self, iterators, store):
        return opening(iterators, store)

    @pytest.mark.parametrize(
        "spec",
        [
            {"where": "ordinal > 1000", "repeat": 2_000_000_000},
            {"mux": [{"where": "ordinal > 1000", "repeat": True}], "repeat": 2_000_000_000},
            {"where": "ordinal > 1000", "repeat": True},
            {"rank": 40, "world_size": 50, "repeat": 2_000_000_000, "shuffle": 3},
        ],
    )
    def test_nothing_repeated_is_nothing(self, iterators, spec):
        iterator = made(iterators, **spec)
        assert [iterators.read(iterator, "next") for _ in range(3)] == ["", "", ""]

    def test_an_open_is_one_step(self, iterators, files, shards):
        iterator = made(iterators)
        first, second, _ = (files.open(iterator, "next") for _ in range(3))
        assert whole(second) == f"{shards[1][0]}\n".encode()
        assert whole(first) == f"{shards[1][1]}\n".encode()
        assert whole(second) == whole(OpenFile(files, second.id, iterator, "next")) == f"{shards[1][0]}\n".encode()
        for each in (first, second):
            assert each.release() is None
        assert iterators.read(iterator, "position") == "2\n"

    def test_a_value_may_come_in_pieces(self, iterators, files):
        iterator = made(iterators)
        text = json.dumps({"shuffle": 7, "batch": 12, "where": 'key != "ü"'}, indent=1, ensure_ascii=False).encode()
        for size in (1, 2, 3, 7, 100):
            iterators.write(iterator, "spec", {})
            opened = files.open(iterator, "spec")
            for at in range(0, len(text), size):
                assert iterators.read(iterator, "batch") == "1\n"
                opened.write(Piece(at, text[at : at + size]))
            opened.write(Piece(len(text), b"\n"))
            assert iterators.read(iterator, "batch") == "12\n"
            assert opened.release() is None
            assert iterators.read(iterator, "error") == ""

    def test_pieces_that_are_sent_again_count_once(self, iterators, files):
        iterator = made(iterators)
        opened = files.open(iterator, "spec")
        pieces = [(0, b'{"batch"', 0), (0, b'{"batch"', 1), (8, b":5}", 1), (0, b'{"batch"', 2), (8, b":5}", 2)]
        for piece in pieces:
            opened.write(Piece(*piece))
        assert iterators.read(iterator, "batch") == "5\n"
        iterators.read(iterator, "next")
        opened.write(Piece(8, b":5}", 3))
        assert iterators.read(iterator, "position") == "5\n"
        opened.write(Piece(11, b'{"batch":6}', 3))
        assert iterators.read(iterator, "batch") == "6\n"
        assert opened.release() is None
        opened.write(Piece(30, b'{"batch":7}', 3))
        assert iterators.read(iterator, "batch") == "6\n"

    @pytest.mark.parametrize("ended", ["released", "dead"])
    def test_of_what_was_written_nothing_stays(self, iterators, files, store, ended):
        iterator = made(iterators)
        opened = files.open(iterator, "spec")
        opened.write(Piece(0, b'{"batch":5}'))
        if ended == "released":
            assert opened.release() is None
        with store.transaction() as connection:
            connection.execute("UPDATE mount SET started = 'another process of that number'")
        store.add_mount(os.getpid())
        with store.transaction() as connection:
            for table in ("written", "open"):
                assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)

    def test_what_is_written_twice_is_meant_twice(self, iterators, files):
        iterator = made(iterators)
        opened = files.open(iterator, "reset")
        # The third one was sent again, after a worker had died.
        for resent, position in [(0, 0), (0, 0), (3, 1), (3, 0)]:
            iterators.read(iterator, "next")
            opened.write(Piece(0, b"1\n", resent))
            assert iterators.read(iterator, "position") == f"{position}\n"

    def test_a_piece_that_is_refused_is_refused_again_and_what_follows_begins_anew(self, iterators, files):
        iterator = made(iterators, batch=4)
        opened = files.open(iterator, "spec")
        opened.write(Piece(0, b'{"batch":'))
        for resent in range(2):
            with pytest.raises(UsageError, match=r"not JSON: 'x.*need double quotes"):
                opened.write(Piece(9, b"x}", resent))
            assert "spec: not JSON" in iterators.read(iterator, "error")
        opened.write(Piece(11, b'{"batch":9}', 1))
        opened.write(Piece(12, b'{"select":', 1))
        with pytest.raises(UsageError, match="there is no 'nope'"):  # which is found out after the write
            opened.write(Piece(22, b'"nope"}', 1))
        for resent in range(1, 3):
            with pytest.raises(UsageError, match="integer from 1"):
                opened.write(Piece(22, b'{"batch":0}', resent))
        assert iterators.read(iterator, "batch") == "9\n"

    def test_what_is_not_complete_at_the_end_is_dropped_and_said(self, iterators, files):
        iterator = made(iterators)
        opened = files.open(iterator, "spec")
        opened.write(Piece(0, b'{"batch": 3'))
        assert opened.release() is None
        assert iterators.read(iterator, "batch") == "1\n"
        assert iterators.read(iterator, "error") == "spec: the written JSON value was incomplete: dropped\n"

    def test_there_is_a_most(self, iterators, files):
        iterator = made(iterators)
        opened = files.open(iterator, "token")
        for at in range(16):
            opened.write(Piece(at << 16, b'{"a":"' + b"x" * 65530 if not at else b"x" * 65536))
        with pytest.raises(UsageError, match="at most 1048576 bytes"):
            opened.write(Piece(1 << 20, b"x"))

    def test_a_full_disk_changes_nothing(self, iterators, store, shards):
        iterator = made(iterators)
        iterators.read(iterator, "next")
        ((pages,),) = store._connection.execute("PRAGMA page_count").fetchall()
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(FullError, match="disk is full"):
            for number in range(10_000):
                iterators.create(f"{number:0200d}")
        assert iterators.read(iterator, "position") == "1\n"
        store._connection.execute(f"PRAGMA max_page_count = {pages * 100}")
        assert iterators.read(iterator, "next") == f"{shards[1][1]}\n"

    def test_a_store_that_fails_is_an_error_of_the_store(self, iterators, store):
        iterator = made(iterators)
        store.close()
        with pytest.raises(StateError, match="closed"):
            iterators.read(iterator, "next")


# Starts a process that steps, and prints its number; or waits for the end of one.
STEPPING = """
import os, sys
from touchfs.indexing import open_dataset
from touchfs.iterators.iterators import Iterators
from touchfs.iterators.open_files import OpenFiles
from touchfs.store.open_table import OpenTable
from touchfs.store.opens import Opens
from touchfs.store.store import StateStore
source, path, iterator = sys.argv[1:]
dataset = open_dataset(source, in_place=True)
for line in sys.stdin:
    child = os.fork() if line == "start\\n" else os.wait()[0]
    if not child:
        store = StateStore(path)
        iterators = Iterators(store, dataset)
        files = OpenFiles(iterators, Opens(store, OpenTable(), os.getpid()))
    while not child:
        # A step and its text are one transaction: what the killed one took is in the row of its open.
        files.open(int(iterator), "next").read(0, 1 << 20)
    print(child, flush=True)
"""


def ask(steppers, what):
    """The number of the process that has started, or that has ended."""
    print(what, file=steppers.stdin, flush=True)
    return int(steppers.stdout.readline())


class TestKilled:
    def test_each_sample_is_taken_once(self, iterators, store, shards, dataset):
        """Steppers are killed at any instant. What they got is what the rows of their opens say, whose texts are
        made in the transaction of the step."""
        iterator = made(iterators, shuffle=7, repeat=True, batch=3)
        dice = random.Random(2)
        with store.transaction() as connection:
            connection.execute("CREATE TABLE taken (text BLOB)")
            connection.execute(
                "CREATE TRIGGER taken AFTER INSERT ON open BEGIN INSERT INTO taken VALUES (new.text); END"
            )
        command = [sys.executable, "-c", STEPPING, os.fspath(shards[0]), store.path, str(iterator)]

        def texts():
            with store.transaction() as connection:
                return connection.execute("SELECT text FROM taken").fetchall()

        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as steppers:
            for _ in range(2):
                for stepper in [ask(steppers, "start") for _ in range(3)]:
                    before = len(texts())
                    wait_until(lambda before=before: len(texts()) > before + 10)
                    time.sleep(dice.random() * 0.05)
                    os.kill(stepper, signal.SIGKILL)
                for _ in range(3):
                    ask(steppers, "wait")
            steppers.communicate()
        whole(opening(iterators, store).open(iterator, "next"))
        taken = [bytes(text).decode() for (text,) in texts()]
        counts = Counter(path for text in taken for path in text.splitlines())
        steps = sum(counts.values())
        assert steps > 150
        epochs, rest = divmod(steps, 23)
        assert set(counts) == set(shards[1])
        assert set(counts.values()) <= {epochs, epochs + 1}
        assert sum(count > epochs for count in counts.values()) == rest
        assert int(iterators.read(iterator, "epoch")) * 23 + int(iterators.read(iterator, "position")) == steps


class Machine(RuleBasedStateMachine):
    """Against lists: of what each epoch has, and a number for where each iterator is."""

    source: Path
    paths: list[str]
    DEFAULTS: ClassVar = {"select": "samples", "shuffle": None, "world_size": 1, "rank": 0}

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.dataset = open_dataset(os.fspath(self.source), in_place=True)
        self.model = {}
        self.written = set()
        self.orders = {}
        self.other = None
        self.opened()

    def opened(self):
        self.store = StateStore(os.path.join(self.directory.name, "store.sqlite"))
        self.iterators = Iterators(self.store, self.dataset)
        self.files = opening(self.iterators, self.store)

    def teardown(self):
        self.store.close()
        if self.other is not None:
            self.other[0].close()
        self.directory.cleanup()

    tokens = Bundle("tokens")
    specs = st.fixed_dictionaries(
        {"batch": st.integers(1, 30)},
        optional={
            "shuffle": st.integers(0, 3),
            "select": st.sampled_from(["samples", "samples/two", "shards/three/talk1"]),
            "world_size": st.integers(3, 4),
            "rank": st.integers(0, 2),
        },
    ).filter(lambda spec: "rank" not in spec or "world_size" in spec)
    names = st.sampled_from("ab")

    def order(self, spec, number):
        """The paths of an epoch, by the definition of what a spec says."""
        start = spec.get("select", "").replace("samples", "shards")
        paths = [path for path in self.paths if path.startswith(start + "/" if start else "")]
        if "shuffle" in spec:
            samples = node.LazyIndexedManifestIterator(range(len(paths)), True, spec["shuffle"] + number)
            paths = [paths[ordinal] for ordinal in samples]
        return paths[spec.get("rank", 0) :: spec.get("world_size", 1)]

    @rule(name=names)
    def create(self, name):
        if name in self.model:
            with pytest.raises(ExistsError):
                self.iterators.create(name)
        else:
            self.iterators.create(name)
            self.model[name] = ({"batch": 1}, 0, 0)

    @rule(name=names)
    def remove(self, name):
        self.written.discard(name)
        if self.model.pop(name, None):
            self.iterators.remove(name)
        else:
            with pytest.raises(NotFoundError):
                self.iterators.remove(name)

    def each(self, name):
        return self.iterators.find(name)

    @rule(name=names, spec=specs)
    def spec(self, name, spec):
        if name in self.model:
            self.iterators.write(self.each(name), "spec", spec)
            self.written.add(name)
            old, number, position = self.model[name]
            is_same_pass = {**self.DEFAULTS, **old, "batch": 0} == {**self.DEFAULTS, **spec, "batch": 0}
            self.model[name] = (spec, number, position) if is_same_pass else (spec, 0, 0)

    @rule(name=names, batch=st.integers(1, 30))
    def batch(self, name, batch):
        if name in self.model:
            self.iterators.write(self.each(name), "batch", batch)
            spec, number, position = self.model[name]
            self.model[name] = ({**spec, "batch": batch}, number, position)

    @rule(name=names)
    def bad(self, name):
        if name in self.model:
            # Without a spec of its own, one with a refused spec makes no steps: test_refused_specs.py.
            for file in (*["spec"] * (name in self.written), "batch", "token", "reset"):
                with pytest.raises(UsageError):
                    self.iterators.write(self.each(name), file, {"batch": -1})

    @rule(name=names, steps=st.integers(1, 5))
    def step(self, name, steps):
        for _ in range(steps if name in self.model else 0):
            spec, number, position = self.model[name]
            wanted = self.order(spec, number)[position : position + spec["batch"]]
            assert self.iterators.read(self.each(name), "peek").splitlines() == wanted
            assert self.iterators.read(self.each(name), "next").splitlines() == wanted
            self.model[name] = (spec, number, position + len(wanted)) if wanted else (spec, number + 1, 0)

    @rule(name=names, steps=st.integers(1, 5))
    def step_as_a_mount_does(self, name, steps):
        for _ in range(steps if name in self.model else 0):
            spec, number, position = self.model[name]
            wanted = self.order(spec, number)[position : position + spec["batch"]]
            opened = self.files.open(self.each(name), "next")
            assert whole(opened).decode().splitlines() == wanted
            assert opened.release() is None
            self.model[name] = (spec, number, position + len(wanted)) if wanted else (spec, number + 1, 0)

    @rule(name=names, target=tokens)
    def save(self, name):
        if name not in self.model:
            return None
        return self.iterators.read(self.each(name), "token"), self.model[name]

    @rule(name=names, saved=tokens)
    def restore(self, name, saved):
        if name not in self.model or saved is None:
            return
        text, (spec, number, position) = saved
        ours = self.model[name][0]
        if {**ours, "batch": 0} == {**spec, "batch": 0}:
            self.iterators.write(self.each(name), "token", json.loads(text))
            self.model[name] = (ours, number, position)

    @rule(saved=consumes(tokens))
    def forget(self, saved):
        pass

    @rule(name=names, number=st.none() | st.integers(0, 5))
    def reset(self, name, number):
        if name in self.model:
            self.iterators.write(self.each(name), "reset", 1 if number is None else {"epoch": number})
            self.model[name] = (self.model[name][0], number or 0, 0)

    @rule()
    def restart(self):
        self.store.close()
        self.opened()

    @rule()
    def another_process(self):
        """There are two, which take turns."""
        mine, other = (self.store, self.files, self.iterators), self.other
        if other is None:
            self.opened()
        else:
            self.store, self.files, self.iterators = other
        self.other = mine

    @invariant()
    def told(self):
        assert self.iterators.names() == [
            name for name, _ in sorted(self.model.items(), key=lambda entry: self.each(entry[0]))
        ]
        for name, (spec, number, position) in self.model.items():
            told = [int(self.iterators.read(self.each(name), file)) for file in ("epoch", "position", "len", "batch")]
            assert told == [number, position, len(self.order(spec, number)), spec["batch"]]


@pytest.mark.parametrize("examples", [12, pytest.param(40, marks=pytest.mark.variant)])
def test_against_a_model(shards, examples):
    Machine.source, Machine.paths = shards
    open_dataset(os.fspath(shards[0]), in_place=True)
    run_state_machine_as_test(Machine, settings=settings(max_examples=examples, stateful_step_count=25, deadline=None))
