"""The numbers of a mount, parsed by Prometheus's own parser."""

import urllib.request

from mounts import Mount
from prometheus_client.parser import text_string_to_metric_families as parse
from waiting import wait_until


class Numbers(dict[tuple[str, ...], float]):
    """The samples of a text, by name and values of labels, after a check of what is always true."""

    def __init__(self, text: str) -> None:
        super().__init__()
        for family in parse(text):
            for each in family.samples:
                self[each.name, *each.labels.values()] = each.value
        for name, *labels in list(self):
            if name == "touchfs_request_seconds_count":
                assert self["touchfs_requests_total", *labels] == self[name, *labels]
                assert self["touchfs_request_seconds_bucket", *labels, "+Inf"] == self[name, *labels]
        self.size = len(text.encode())

    def requests(self, operation: str) -> float:
        return self["touchfs_requests_total", operation]

    def total(self, name: str) -> float:
        return self[f"touchfs_{name}_total",]


def numbers_of(mounted: Mount) -> Numbers:
    return Numbers((mounted.path / ".touchfs/stats").read_text())


def fetch(url: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
        return answer.read().decode()


def settled(url: str) -> Numbers:
    """The numbers at a port, once nothing is being answered. To look at them asks nothing of the mount."""

    def look() -> Numbers | None:
        numbers = Numbers(fetch(url))
        return None if numbers["touchfs_requests_in_flight",] else numbers

    return wait_until(look)
