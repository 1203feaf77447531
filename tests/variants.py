"""Parameters of a test, of which `make test` tries some and `make test-all` all."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def with_variants(values: Iterable[Any], first: Callable[[Any], bool]) -> list[Any]:
    """For `parametrize`: all values, of which those that are not among the first are variants."""
    return [value if first(value) else pytest.param(value, marks=pytest.mark.variant) for value in values]
