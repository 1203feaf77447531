"""Turn the errors that pyarrow raises for damaged data into ours."""

from __future__ import annotations

from touchfs.core.errors import FormatError, TouchfsError
from touchfs.core.extras import load_pyarrow


class pyarrow_errors:
    """Raise FormatError for what pyarrow raises about the data at an offset, and about values that Python lacks.

    `what` names the data: "an Arrow batch".
    """

    def __init__(self, what: str, offset: int | None = None) -> None:
        self._what = what
        self._offset = offset

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        foreign = (load_pyarrow().ArrowException, ArithmeticError, LookupError, OSError, StopIteration, TypeError)
        if isinstance(error, KeyError):  # the number of a type
            problem = f"{self._what} has intervals for which pyarrow has no class"
            raise FormatError(problem, offset=self._offset) from error
        if isinstance(error, (*foreign, ValueError)) and not isinstance(error, TouchfsError):
            # The text of a LookupError is the number of a type.
            reason = f"pyarrow has no values of type {error}" if isinstance(error, LookupError) else error
            raise FormatError(f"{self._what} cannot be read: {reason}", offset=self._offset) from error
