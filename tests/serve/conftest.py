"""Servers that several tests ask."""

import subprocess

import pytest
from command import TOUCHFS
from tars import write_tar
from tree_servers import HOSTILE, SPEECH, serving


@pytest.fixture(scope="session")
def speech(tmp_path_factory):
    """Three shards of the ten sentences."""
    place = tmp_path_factory.mktemp("served") / "shards"
    command = [TOUCHFS, "pack", "touchnet", SPEECH, place, "--num-utt-per-shard", "4", "--jobs", "1"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return place


@pytest.fixture(scope="session")
def served(speech):
    with serving(speech) as server:
        yield server


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """A server of a tar whose names are meant to break listings."""
    with serving(write_tar(tmp_path_factory.mktemp("hostile") / "h.tar", HOSTILE)) as server:
        yield server
