"""One file that shows a dataset: its overview and random samples; or a sample alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from touchfs.dataset.open_shard import OpenShard
from touchfs.explore.html import SIZE, report
from touchfs.explore.page import Page
from touchfs.node.order.feistel import Feistel, round_keys
from touchfs.pages.at_path import overview_at, page_at, page_of_sample
from touchfs.pages.overview import ALL, Overview, SampleChoice
from touchfs.tree.tree import Entry, Tree


def report_at(tree: Tree, entry: Entry, path: str, samples: int, seed: int, choice: SampleChoice = ALL) -> str:
    """The document of an entry at a path; of a dataset or a shard with some random samples. Raises as `page_at`, and
    MissingExtraError without Jinja2.
    """
    found = overview_at(tree, entry, path, choice)
    if found is None:
        page = page_at(tree, entry, path, SIZE, choice)
        return report(page.title, [page])
    overview, title = found
    return report(title, _pages(overview, title, samples, seed))


def _pages(overview: Overview, title: str, samples: int, seed: int) -> Iterator[Page]:
    yield overview.page(title)
    total = len(overview.samples)
    order = Feistel(total, round_keys(seed))
    positions = order(np.arange(min(samples, total), dtype=np.int64))
    numbers, ordinals = overview.places()
    for number, ordinal in zip(numbers[positions].tolist(), ordinals[positions].tolist(), strict=True):
        yield page_of_sample(OpenShard(overview.dataset, overview.shards[number]), ordinal, SIZE)
