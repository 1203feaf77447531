"""`--overlay` of the commands that open a dataset."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture(scope="module")
def overlay(tmp_path_factory):
    path = tmp_path_factory.mktemp("overlay") / "quality.parquet"
    pq.write_table(pa.table({"key": ["talks/monday", "nobody"], "snr": [21.5, 3.0], "tags": [["clean"], []]}), path)
    return path


def test_commands_show_the_rows_of_an_overlay(shards, overlay, touchfs):
    def told(*arguments):
        done = touchfs(*arguments)
        assert done.returncode == 0, done
        return done.stdout.decode()

    given = "--overlay", overlay
    found = told("info", *given, "--json", shards)
    assert json.loads(found)["samples"] == 10
    place = f"{shards}:shards/000000000/talks"
    assert {"monday.snr.txt", "monday.quality.overlay.json"} <= {*told("ls", *given, place).split()}
    assert told("cat", *given, f"{place}/monday.snr.txt") == "21.5"
    assert "size:                  4\n" in told("stat", *given, f"{place}/monday.snr.txt")
    assert told("iterate", *given, "--where", 'snr > 20 and tags contains "clean"', shards).endswith("monday.wav\n")
    (line,) = told("iterate", *given, "--where", "snr exists", "--format", "json", shards).splitlines()
    assert json.loads(line)["files"]["snr.txt"].endswith("talks/monday.snr.txt")
    assert told("verify", *given, shards).endswith("no problem\n")


def test_a_spec_names_the_fields_of_an_overlay(shards, overlay, touchfs, tmp_path):
    given = "--overlay", overlay, "--state-dir", tmp_path
    spec = json.dumps({"where": "snr > 20", "output": "key"})
    for words in (("create", shards, "it", "--spec", spec), ("next", shards, "it")):
        done = touchfs("iterator", *words, *given)
        assert done.returncode == 0, done
    assert done.stdout == b"talks/monday\n"


def test_the_log_counts_what_has_no_other_side(shards, tmp_path, touchfs):
    path = tmp_path / "quality.jsonl"
    path.write_text('{"key": "talks/monday", "snr": 1}\n{"key": "nobody", "snr": 2}\n')
    said = touchfs("index", "--overlay", path, shards).stderr.decode()
    assert f"{path}: 1 row is of no sample\n" in said and f"{path}: 9 of 10 samples have no row\n" in said
    refused = touchfs("ls", "--overlay", f"{path}:uid", shards)
    assert (
        refused.stderr.decode().count("\n") == 1
        and b"has no column 'uid', but key, snr: write FILE:key" in refused.stderr
    )
