"""What jobs need in tests."""

import pytest
from lance_process import one_lance_process

__all__ = ["one_lance_process"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another job at work is not waited for. Else it is for 3 seconds, in which its workers may notice its end."""
    monkeypatch.setattr("touchfs.bulk.locks._PATIENCE_SECONDS", 0.05)
