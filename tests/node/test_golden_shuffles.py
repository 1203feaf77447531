"""States and tokens of passes that `SampleSet.shuffle` of version 0.1 made (tests/data/version_0.1) are read."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from touchfs import SampleSet

GOLDEN = Path(__file__).parent.parent / "data" / "version_0.1"
KEPT = json.loads((GOLDEN / "sample_sets.json").read_text())


@pytest.fixture(scope="module")
def golden() -> Any:
    found = importlib.util.spec_from_file_location("sample_sets", GOLDEN / "sample_sets.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def makers(golden: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[..., SampleSet]]:
    place = tmp_path_factory.mktemp("version_0.1")
    for name in ("dataset", "shar"):
        shutil.copytree(GOLDEN / name, place / name)
    made: dict[str, Callable[..., SampleSet]] = golden.sample_sets(place / "dataset", place / "shar")
    return made


CASES = [(name, case) for name, kept in KEPT.items() for case in kept]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_shuffled_pass_goes_on_from_its_states(golden: Any, makers: Any, name: str, case: str) -> None:
    kept = KEPT[name][case]
    samples = makers[name](**({"rank": 1, "world_size": 2} if case == "a rank" else {}))
    samples.load_state_dict(kept["state"])
    assert [golden.key_of(item) for item in islice(samples, len(kept["then"]))] == kept["then"]


@pytest.mark.parametrize("name", KEPT)
def test_tokens_of_a_shuffled_pass_rebuild_their_items(golden: Any, makers: Any, name: str) -> None:
    samples = makers[name]()
    for key, token in KEPT[name]["alone"]["taken"] + KEPT[name]["in epoch 2"]["taken"]:
        assert golden.key_of(samples[token]) == key
