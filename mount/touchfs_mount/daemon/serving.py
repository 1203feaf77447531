"""The tree that a mount serves, and the answers and control files that each process makes of it after its fork.

It is created before the first fork. A reload replaces the tree and the modes, for processes that are forked later.
"""

from __future__ import annotations

from collections.abc import Callable

from touchfs.iterators.store_place import StorePlace
from touchfs.tree.tree import Tree
from touchfs_mount.control.directory import ControlDirectory
from touchfs_mount.control.facts import ControlOptions, MountFacts
from touchfs_mount.control.fixed_texts import FixedTexts
from touchfs_mount.requests.access import Modes
from touchfs_mount.requests.refusals import Refusals
from touchfs_mount.requests.server import Worker
from touchfs_mount.requests.tree_answers import Contents, Read, TreeAnswers, read_at_once, read_waiting
from touchfs_mount.requests.walks import Walks


class Serving:
    """The tree and the control directory of a mount. `link` is the target of `.touchfs`, None if there is none. A
    program may index so many shards a minute by listing them as `walk_max` says (`requests.walks`).
    """

    def __init__(
        self,
        tree: Tree,
        modes: Modes,
        facts: MountFacts,
        store: StorePlace | None,
        options: ControlOptions,
        *,
        link: bytes | None,
        walk_max: Callable[[], int] = int,
    ) -> None:
        self._tree, self._modes = tree, modes
        self._facts = facts
        self._store = store
        self._options = options
        self._link = link
        self._walk_max = walk_max
        self.refusals = Refusals(facts.errors)

    def reload(self, tree: Tree, modes: Modes) -> tuple[Tree, Modes]:
        """Replace the tree and modes; return the previous ones. Called in the zygote."""
        before = self._tree, self._modes
        self._tree, self._modes = tree, modes
        return before

    def answers(self) -> tuple[TreeAnswers, TreeAnswers]:
        """Answers that wait for nothing, and answers that may wait."""
        contents, walks = Contents(), Walks(self._walk_max)

        def answers(tree: Tree, read: Read) -> TreeAnswers:
            info = FixedTexts(tree.dataset, self._facts, self._options).info
            return TreeAnswers(tree, read, contents, self._modes, walks, control=self._link, info=info)

        return answers(self._tree.nonblocking, read_at_once), answers(self._tree, read_waiting)

    def control(self, worker: Worker) -> ControlDirectory:
        return ControlDirectory(self._tree, self._modes, self._facts, self._store, self._options, worker, self.refusals)
