"""A global shuffle: its states and tokens, also those of tests/data/global_shuffle and tests/data/version_0.1."""

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
from touchfs.node import merge_states

DATA = Path(__file__).parent.parent / "data"
GOLDEN = DATA / "global_shuffle"
KEPT = json.loads((GOLDEN / "passes.json").read_text())
CASES = [(name, case) for name, kept in KEPT.items() for case in kept]
PASSES = [(name, case) for name, case in CASES if case != "merged"]


@pytest.fixture(scope="module")
def golden() -> Any:
    found = importlib.util.spec_from_file_location("passes", GOLDEN / "passes.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def passes(golden: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[..., SampleSet]]:
    place = tmp_path_factory.mktemp("global_shuffle")
    for name in ("dataset", "shar"):
        shutil.copytree(DATA / "version_0.1" / name, place / name)
    made: dict[str, Callable[..., SampleSet]] = golden.passes(place / "dataset", place / "shar")
    return made


def _ranks(case: str) -> dict[str, int]:
    return {"rank": 1, "world_size": 2} if case == "a rank" else {}


@pytest.mark.parametrize(("name", "case"), CASES)
def test_it_goes_on_from_a_state_that_was_kept(golden: Any, passes: Any, name: str, case: str) -> None:
    kept = KEPT[name][case]
    samples = passes[name](**_ranks(case))
    samples.load_state_dict(kept["state"])
    assert case == "merged" or json.loads(json.dumps(samples.state_dict())) == kept["state"]
    assert [golden.key_of(item) for item in islice(samples, len(kept["then"]))] == kept["then"]


@pytest.mark.parametrize(("name", "case"), PASSES)
def test_a_token_that_was_kept_rebuilds_its_item(golden: Any, passes: Any, name: str, case: str) -> None:
    samples = passes[name](**_ranks(case))
    for key, token in KEPT[name][case]["taken"]:
        assert golden.key_of(samples[token]) == key


@pytest.mark.parametrize("name", [name for name, kept in KEPT.items() if "merged" in kept])
def test_states_of_ranks_that_were_kept_are_merged(name: str) -> None:
    assert merge_states(KEPT[name]["merged"]["states"]) == KEPT[name]["merged"]["state"]
