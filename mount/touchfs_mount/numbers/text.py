"""The numbers of a mount as Prometheus text, version 0.0.4.

Source of the format: https://prometheus.io/docs/instrumenting/exposition_formats/. Labels hold names of operations, of
errnos and of caches, and never a name from the dataset: there may be millions of those, and they may be private.

The package prometheus_client is not used here: it takes 1.9 MB of each mount, whose `.touchfs/stats` has this text, and
it would replace three of these functions. Its HTTP server has a thread for each client, and limits neither.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version

from touchfs.core.extras import DISTRIBUTION
from touchfs_mount.numbers.slots import BUCKET_SHIFT, ERRNOS, OPERATIONS, SupervisorCount, Totals

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Buckets that are shown, from 1 µs to 17 s. The rest is in the last one, which has no end.
_SHOWN = 25
_CACHES = ("scratch", "window")
_VERSION = version(DISTRIBUTION)

Sample = tuple[str, Mapping[str, str], float]


@dataclass(frozen=True, slots=True)
class Metric:
    """A family of samples. A sample is a suffix of the name, labels and a value."""

    name: str
    kind: str
    description: str
    samples: Iterable[Sample]

    def text(self) -> str:
        """Its lines, with HELP and TYPE."""
        lines = [f"# HELP {self.name} {_escaped(self.description)}", f"# TYPE {self.name} {self.kind}"]
        lines += (f"{self.name}{suffix}{_labels(labels)} {value!r}" for suffix, labels, value in self.samples)
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class MountCounts:
    """Numbers of a mount that are not in its slots (`MountFacts`, `Shared`)."""

    since: float
    workers: int
    shards: int
    indexed_shards: int
    in_flight: int
    lost_races: int
    late_replies: int
    internal_errors: int
    resent: int
    reloads: int


def metrics_text(totals: Totals, counts: MountCounts) -> bytes:
    return "".join(metric.text() for metric in _metrics(totals, counts)).encode()


def _metrics(totals: Totals, mount: MountCounts) -> Iterator[Metric]:
    requests = [totals.requests(operation) for operation in range(len(OPERATIONS))]
    counts = totals.counts
    yield Metric("touchfs_info", "gauge", "The version of touchfs.", [("", {"version": _VERSION}, 1)])
    yield _gauge("touchfs_start_time_seconds", "When the mount began, in seconds since 1970.", mount.since)
    yield _gauge("touchfs_workers", "Processes that serve requests.", mount.workers)
    yield _gauge("touchfs_shards", "Shards of the dataset.", mount.shards)
    yield _gauge("touchfs_indexed_shards", "Shards that are indexed.", mount.indexed_shards)
    yield Metric(
        "touchfs_requests_total",
        "counter",
        "Requests of the kernel that were answered.",
        [("", {"operation": name}, sum(buckets)) for name, (buckets, _) in zip(OPERATIONS, requests, strict=True)],
    )
    yield Metric(
        "touchfs_request_seconds",
        "histogram",
        "Time from a request's arrival to its answer, also while it waits for a thread.",
        [
            sample
            for name, (buckets, nanoseconds) in zip(OPERATIONS, requests, strict=True)
            for sample in _histogram(name, buckets, nanoseconds)
        ],
    )
    yield _gauge("touchfs_requests_in_flight", "Requests that are being answered.", mount.in_flight)
    yield _counter("touchfs_read_bytes_total", "Bytes that reads returned.", totals.read_bytes)
    yield Metric(
        "touchfs_errors_total",
        "counter",
        "Requests that got an error. That a name is missing, or a kind of request not supported, is no error.",
        [
            ("", {"errno": name}, value)
            for name, value in zip(
                [*(errno.errorcode[number] for number in ERRNOS), "other"], totals.errors, strict=True
            )
        ],
    )
    for end, what in (("hits", "Results found in a cache"), ("misses", "Results that had to be made, by cache")):
        samples = [("", {"cache": name}, counts[f"{name}_{end}"]) for name in _CACHES]
        yield Metric(f"touchfs_cache_{end}_total", "counter", f"{what}: scratch store, or windows in memory.", samples)
    yield _counter(
        "touchfs_renderings_total", "Recordings and pictures decoded, rendered or measured.", counts["renderings"]
    )
    yield _counter("touchfs_iterator_steps_total", "Steps of iterators.", counts["iterator_steps"])
    yield _counter(
        "touchfs_exact_ranges_total",
        "Reads at URLs of their exact range, as the scratch store evicts most blocks before they are read again.",
        counts["exact_ranges"],
    )
    yield _counter(
        "touchfs_worker_restarts_total",
        "Workers that ended by a failure or a signal, and were replaced.",
        totals.supervisor(SupervisorCount.RESTARTS),
    )
    yield _counter(
        "touchfs_strikes_total",
        "Requests that a worker ran when it ended so, and that run alone next time.",
        totals.supervisor(SupervisorCount.STRIKES),
    )
    yield _counter("touchfs_resends_total", "Times that the kernel was asked to resend all requests.", mount.resent)
    yield _counter("touchfs_lost_races_total", "Requests withdrawn between poll and read.", mount.lost_races)
    yield _counter("touchfs_late_replies_total", "Answers to requests already answered.", mount.late_replies)
    yield _counter("touchfs_internal_errors_total", "Requests that failed by a bug of touchfs.", mount.internal_errors)
    yield _counter("touchfs_reloads_total", "Reloads that ended, also those that failed.", mount.reloads)


def _histogram(operation: str, buckets: list[int], nanoseconds: int) -> Iterator[Sample]:
    """The samples of one operation; none before its first request, because there are 28 of them."""
    count = 0
    if not any(buckets):
        return
    for place in range(_SHOWN):
        count += buckets[place]
        yield "_bucket", {"operation": operation, "le": repr((1 << BUCKET_SHIFT + place) / 1e9)}, count
    total = sum(buckets)
    yield "_bucket", {"operation": operation, "le": "+Inf"}, total
    yield "_sum", {"operation": operation}, nanoseconds / 1e9
    yield "_count", {"operation": operation}, total


def _gauge(name: str, description: str, value: float) -> Metric:
    return Metric(name, "gauge", description, [("", {}, value)])


def _counter(name: str, description: str, value: float) -> Metric:
    return Metric(name, "counter", description, [("", {}, value)])


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escaped(value).replace(chr(34), chr(92) + chr(34))}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
