"""Looking at paths that may not answer: an error is an answer."""

from pathlib import Path

from touchfs.core.errors import MissingExtraError, UsageError
from touchfs.registry.silent import silent_paths
from touchfs.source.data import Look
from touchfs.source.store import Status


class _Failing(Look):
    def stat(self, path: str) -> Status:
        raise (MissingExtraError if "extra" in path else UsageError)("no")


def test_any_error_is_an_answer(tmp_path: Path) -> None:
    assert silent_paths([str(tmp_path / "extra"), str(tmp_path / "usage")], 5, _Failing().stat) == frozenset()
