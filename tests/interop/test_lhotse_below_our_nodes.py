"""Our nodes over Lhotse's: they are no subclasses of ours, and keep the promises of the same contract."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import lhotse.lazy
import pytest
from lhotse import CutSet
from lhotse.cut import MonoCut

from touchfs import node
from touchfs.core.token import from_json, to_json

# Its readers leave their files open until they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("cuts") / "cuts.jsonl"
    CutSet.from_cuts(MonoCut(f"cut-{i}", 0, 1.0, 0) for i in range(7)).to_file(path)
    return path


def twice(cut: Any) -> list[Any]:
    return [cut.with_id(f"{cut.id}-{i}") for i in range(2)]


def even(cut: Any) -> bool:
    return int(cut.id[-1]) % 2 == 0


def same(cut: Any) -> Any:
    return cut


NODES: dict[str, Callable[[Any], node.IteratorNode]] = {
    "shuffler": lambda cuts: node.LazyShuffler(cuts, 3),
    "flattener": lambda cuts: node.LazyFlattener(node.LazyMapper(cuts, twice)),
    "filter": lambda cuts: node.LazyFilter(cuts, even),
    "chain": lambda cuts: node.LazyIteratorChain(cuts, cuts),
    "mapper of Lhotse's": lambda cuts: node.LazyShuffler(lhotse.lazy.LazyMapper(cuts, same), 3),
    "shuffler of Lhotse's": lambda cuts: node.LazyMapper(
        CutSet(lhotse.lazy.LazyShuffler(cuts, 3, random.Random(5))), same
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_they_are_restored_and_rebuilt_from_tokens(manifest: Path, name: str) -> None:
    def make() -> node.IteratorNode:
        return NODES[name](CutSet.from_file(manifest, indexed=True))

    whole = list(make())
    assert [make()[node.get_graph_origin(cut)].id for cut in whole] == [cut.id for cut in whole]
    for taken in range(len(whole)):
        saved, restored = make(), make()
        list(islice(saved, taken))
        node.restore_state_dict(restored, from_json(to_json(node.collect_state_dict(saved))))
        assert [cut.id for cut in restored] == [cut.id for cut in whole[taken:]], taken
    gc.collect()
