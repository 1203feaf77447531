"""The loader of a set of `touchfs.open`: torchdata's `StatefulDataLoader` over its graph.

Each pass is the next epoch. A state continues exactly with the same number of workers. With another number the rest of
the epoch has the same items, in another order.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from touchfs.core.errors import MissingExtraError, UsageError
from touchfs.core.extras import install_hint
from touchfs.core.token import State
from touchfs.node.graph.merge import merge_states
from touchfs.torch import NodeIterableDataset, graph_states

try:
    from torchdata.stateful_dataloader import StatefulDataLoader
except ImportError as error:
    raise MissingExtraError(f"a loader with a state needs torchdata: {install_hint('torch')}") from error


class SetLoader(StatefulDataLoader):  # type: ignore[misc]
    """The items of a graph below `node`, or batches of `batch_size` of them, made by `num_workers` processes.

    `collate` makes a batch of a list of items; None is PyTorch's way. With `distributed` the ranks of the environment
    share the items. `options` are those of PyTorch's DataLoader.
    """

    def __init__(
        self,
        node: Any,
        batch_size: int | None,
        num_workers: int,
        collate: Callable[[Any], Any] | None,
        distributed: bool,
        options: dict[str, Any],
    ) -> None:
        self._dataset = NodeIterableDataset(node, distributed=distributed)
        self._is_shared = self._dataset.world_size > 1
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "'set_vital' is deprecated")  # torchdata calls it in each loader
            super().__init__(self._dataset, batch_size, num_workers=num_workers, collate_fn=collate, **options)

    def load_state_dict(self, state_dict: State) -> None:
        """Make the next pass go on where `state_dict` was taken. It raises UsageError for a state of another set.

        With `distributed`, one of another number of workers is a UsageError: `merge_states` merges those of all ranks.
        """
        states = graph_states(state_dict)
        if ("_snapshot" in state_dict) == (self.num_workers > 0) and len(states) == max(self.num_workers, 1):
            super().load_state_dict(state_dict)
            return
        if self._is_shared:
            raise UsageError(
                f"the state is of {len(states)} workers, and this loader has {self.num_workers}: merge the states of "
                "all ranks with merge_states, and give the result to touchfs.torch.NodeIterableDataset"
            )
        self._dataset.state = merge_states(states)
