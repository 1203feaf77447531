"""The numbers as Prometheus text: its own parser reads it, and reads what was counted."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as parse
from touchfs_mount.numbers.slots import OPERATIONS, MountNumbers, SupervisorCount
from touchfs_mount.numbers.snapshot import parse_snapshot
from touchfs_mount.numbers.text import Metric, MountCounts, metrics_text

from touchfs.core.errors import FormatError

COUNTS = MountCounts(
    since=1.7e9,
    workers=2,
    shards=10,
    indexed_shards=7,
    in_flight=3,
    lost_races=4,
    late_replies=5,
    internal_errors=6,
    resent=7,
    reloads=8,
)
LOOKUP, READ = OPERATIONS.index("lookup"), OPERATIONS.index("read")


def some_text() -> str:
    numbers = MountNumbers(2)
    for worker, times in enumerate(([500, 1024, 1025], [3_000_000, 10**12])):
        for nanoseconds in times:
            numbers.workers[worker].record(READ, nanoseconds)
    numbers.workers[0].record(LOOKUP, 1)
    numbers.workers[1].add_read(4096)
    numbers.supervisor.add(SupervisorCount.RESTARTS, 9)
    return metrics_text(numbers.totals(), COUNTS).decode()


def test_prometheus_reads_what_was_counted():
    families = {family.name: family for family in parse(some_text())}
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert values["touchfs_requests_total", "read"] == 5
    assert values["touchfs_requests_total", "unlink"] == 0
    assert values["touchfs_read_bytes_total",] == 4096
    assert values["touchfs_worker_restarts_total",] == 9
    assert values["touchfs_requests_in_flight",] == 3
    assert [values[f"touchfs_{name}_total",] for name in ("lost_races", "late_replies", "internal_errors")] == [4, 5, 6]
    assert [values[f"touchfs_{name}_total",] for name in ("resends", "reloads")] == [7, 8]
    assert [values[f"touchfs_{name}",] for name in ("shards", "indexed_shards")] == [10, 7]
    assert values["touchfs_start_time_seconds",] == 1.7e9
    histogram = families["touchfs_request_seconds"]
    assert histogram.type == "histogram"
    buckets = [
        (float(sample.labels["le"]), sample.value)
        for sample in histogram.samples
        if sample.name.endswith("_bucket") and sample.labels["operation"] == "read"
    ]
    ends, counts = zip(*buckets, strict=True)
    assert ends[0] == 1.024e-6
    assert ends[-1] == math.inf
    assert list(ends) == sorted(ends)
    assert [count for end, count in buckets if end in (1.024e-6, 2.048e-6, 0.004194304, math.inf)] == [2, 3, 4, 5]
    assert list(counts) == sorted(counts)
    assert values["touchfs_request_seconds_count", "read"] == 5
    assert values["touchfs_request_seconds_sum", "read"] == pytest.approx(1000.003002549)


def test_every_metric_has_a_type_and_a_description_and_its_unit_in_its_name():
    for family in parse(some_text()):
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram")
        names = {sample.name for sample in family.samples}
        assert family.type != "counter" or names == {f"{family.name}_total"}
        assert {label for sample in family.samples for label in sample.labels} <= {
            "operation",
            "le",
            "errno",
            "cache",
            "version",
        }


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_labels_and_descriptions_are_escaped(label, description):
    text = Metric("m", "gauge", description, [("", {"one": label, "two": "x"}, 1)]).text()
    (family,) = parse(text)
    assert family.samples[0].labels == {"one": label, "two": "x"}
    assert text.count("\n") == 3


def test_our_own_reader_reads_it_too():
    snapshot = parse_snapshot(some_text())
    assert snapshot.value("read_bytes_total") == 4096
    assert snapshot.by_label("requests_total")["read"] == 5
    assert set(snapshot.operations) == {"lookup", "read"}
    read = snapshot.operations["read"]
    assert (read.count, read.seconds) == (5, pytest.approx(1000.003002549))
    assert [read.quantile(part) for part in (0.2, 0.5, 0.8, 1)] == [1.024e-6, 2.048e-6, 0.004194304, math.inf]
    assert (snapshot.value("never heard of"), snapshot.by_label("never heard of")) == (0, {})


@given(st.text() | st.binary().map(lambda data: data.decode("utf-8", "replace")))
def test_any_text_is_parsed_or_refused(text):
    try:
        parse_snapshot(text)
    except FormatError as error:
        assert "is no metric" in str(error)


@given(st.data())
def test_a_damaged_text_is_parsed_or_refused(data):
    text = some_text()
    place = data.draw(st.integers(0, len(text) - 1))
    try:
        parse_snapshot(text[:place] + data.draw(st.text(max_size=3)) + text[place + 1 :])
    except FormatError as error:
        assert "is no metric" in str(error)
