"""The numbers of a mount, parsed by Prometheus's own parser."""

from mounts import Mount
from prometheus_client.parser import text_string_to_metric_families as parse


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
