"""Lhotse's own tests of its lazy nodes, samplers and checkpoints, over our nodes.

Only `make soak` runs this. The suite is Lhotse's repository: the directory that `TOUCHFS_LHOTSE` names, or else a clone
of the installed version.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import lhotse
import pytest

REPOSITORY = "https://github.com/lhotse-speech/lhotse"
TESTS = Path(__file__).parents[1]
# Without test/dataset/test_multinode_resume.py, whose ranks are new processes: they have Lhotse's nodes.
SUITE = (
    "test/dataset/sampling",
    "test/dataset/test_checkpoint_restore.py",
    "test/dataset/test_e2e_checkpoint_restore.py",
    "test/known_issues/test_lazy_cuts_issues.py",
    "test/shar/test_indexed_partition.py",
    "test/test_checkpoint.py",
    "test/test_indexing.py",
    "test/test_iterator_node_e2e_checkpoint.py",
    "test/test_lazy.py",
    "test/test_lazy_stateful.py",
    "test/test_multiplexing_iterables.py",
)
# Of 735 tests, 53 are different and 16 are skipped or fail as Lhotse expects.
PASSED = 660

# What fails, by the reason for it: the file below test/, and its tests.
DIFFERENCES: dict[str, dict[str, str]] = {
    "They fail with Lhotse's nodes, too: torch's Sampler takes no arguments any more, and datasets has changed": {
        "dataset/sampling/test_stateless_sampler.py": """
            test_stateless_sampler_single_file test_stateless_sampler_multi_files
            test_stateless_sampler_multi_files_with_scales
            test_stateless_sampler_in_dataloader[0] test_stateless_sampler_in_dataloader[2]
            test_stateless_sampler_in_dataloader_with_iterable_dataset[0]
            test_stateless_sampler_in_dataloader_with_iterable_dataset[2]
            test_stateless_sampler_bucketing test_stateless_sampler_requires_uncompressed_manifest
            test_stateless_sampler_base_seed_is_deterministic test_stateless_sampler_map
        """,
        "test_iterator_node_e2e_checkpoint.py": "test_iterator_node_replay_exact_restore[LazyHFDatasetIterator]",
    },
    "The orders of the shuffle buffer and of the multiplexers are our own": {
        "dataset/sampling/test_text_sampling.py": "test_audio_and_text_dataloader_with_dynamic_sampler",
        "test_lazy.py": "test_shuffle[RecordingSet] test_shuffle[SupervisionSet] test_shuffle[CutSet]",
        "test_lazy_stateful.py": "TestLazyShufflerStateful::test_matches_streaming_shuffle_order",
        "test_multiplexing_iterables.py": """
            test_multiplexer_deterministic test_cut_set_mux_stop_early test_multiplexer_max_open_streams
            test_multiplexer_max_open_streams_1 test_cut_set_infinite_mux
        """,
    },
    "A node over a list has no state: Lhotse's says that it has one, and begins the list anew": {
        "test_lazy_stateful.py": """
            TestLazyIteratorChainStateful::test_isinstance_stateful TestLazyFilterStateful::test_isinstance_stateful
            TestLazyIteratorMultiplexerStateful::test_isinstance_stateful
            TestLazyMapperStateful::test_isinstance_stateful TestLazyRepeaterStateful::test_isinstance_stateful
            TestLazySlicerStateful::test_isinstance_stateful
        """,
        "test_checkpoint.py": "test_collect_raises_on_non_checkpointable_node",
    },
    "It looks into the fields of a state, or into private attributes of a node": {
        "test_lazy.py": "test_lazy_jsonl_iterator_caches_len",
        "test_lazy_stateful.py": """
            TestLazyJsonlIteratorStateful::test_restore_at_start TestLazyJsonlIteratorStateful::test_restore_at_end
            TestLazyManifestIteratorStateful::test_state_dict_delegates
            TestLazyIteratorMultiplexerStateful::test_restore_does_not_poison_next_epoch
            TestLazyRepeaterStateful::test_epoch_tracking TestNestedStatefulGraph::test_nested_state_dict
        """,
    },
    "The lines are a stream of ours here, which says that it has a state": {
        "test_checkpoint.py": "test_collect_restore_simple",
        "test_iterator_node_e2e_checkpoint.py": (
            "test_noncheckpointable_iterator_nodes_still_report_noncheckpointable"
        ),
        "test_lazy_stateful.py": "TestLazyJsonlIteratorStateful::test_isinstance_stateful",
    },
    "It lists the subclasses of Lhotse's IteratorNode, and ours are none": {
        "test_iterator_node_e2e_checkpoint.py": "test_iterator_node_checkpoint_matrix_is_complete",
    },
    "The error is a UsageError, and a token that is missing is one at the item that lacks it": {
        "dataset/test_checkpoint_restore.py": "TestMixedSourceConstantTimeAccessRaises::test_mixed_raises",
        "test_indexing.py": "test_has_constant_time_access_propagates_through_filter",
        "test_lazy_stateful.py": """
            TestLazyIteratorMultiplexerStateful::test_requires_child_graph_tokens
            TestLazyFlattenerStateful::test_checkpointing_not_supported
        """,
    },
    "An index is not a file beside the data, and index_path is refused": {
        "test_indexing.py": """
            test_cutset_from_files_indexed_auto_detect test_lazy_indexed_manifest_iterator_custom_index_path
            test_cutset_from_file_with_index_path test_cutset_from_files_with_index_path
        """,
    },
    "A token is the one of an item, and neither a negative number nor a position in a chain": {
        "test_indexing.py": "test_lazy_indexed_manifest_iterator_getitem test_cutset_from_files_indexed_getitem",
    },
    "A chain is not taken apart in another one, so that tokens show both": {
        "test_lazy_stateful.py": "TestLazyIteratorChainStateful::test_auto_flatten",
    },
    "A chain of streams does not shuffle them, and shuffle_iters is refused there": {
        "test_lazy_stateful.py": "TestLazyIteratorChainStateful::test_restore_with_shuffled_shards",
    },
    "A lambda is not pickled by dill": {"test_lazy.py": "test_dillable"},
}
EXPECTED = {
    f"test/{path}::{name}" for files in DIFFERENCES.values() for path, names in files.items() for name in names.split()
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> str:
    if given := os.environ.get("TOUCHFS_LHOTSE"):
        return given
    place = str(tmp_path_factory.mktemp("lhotse"))
    clone = ["git", "clone", "--quiet", "--depth", "1", "--branch", f"v{lhotse.__version__}", REPOSITORY, place]
    if subprocess.run(clone, capture_output=True).returncode:
        pytest.fail(
            f"{' '.join(clone[:-1])} failed: have TOUCHFS_LHOTSE name a checkout of that repository", pytrace=False
        )
    return place


@pytest.mark.soak
def test_lhotses_own_tests_over_our_nodes(suite: str, tmp_path: Path) -> None:
    options = (
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "interop.lhotse_nodes",
        "--tb=line",
        "-rfE",
        f"--basetemp={tmp_path}/t",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *SUITE],
        cwd=suite,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
    )
    failed = set(re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE))
    assert (failed - EXPECTED, EXPECTED - failed) == (set(), set()), done.stdout + done.stderr
    passed = re.search(r" (\d+) passed", done.stdout)
    assert passed and int(passed[1]) >= PASSED, done.stdout
