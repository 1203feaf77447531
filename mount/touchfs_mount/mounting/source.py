"""Opens the source of a mount. An error has the exit status of `touchfs mount`."""

from __future__ import annotations

from touchfs.core.errors import FormatError, MountError, NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.dataset import Dataset, counted
from touchfs.indexing.serving import why_unservable
from touchfs.verify.checksums import without_checksums
from touchfs.verify.crc32c import extender
from touchfs_mount.mounting.overlap import is_inside
from touchfs_mount.mounting.request import MountRequest

# If the source cannot be opened: the first matching class counts.
_SOURCE_STATUSES: tuple[tuple[type[TouchfsError], int], ...] = (
    (UsageError, 2),
    (NotFoundError, 11),
    (SourceError, 12),
    (FormatError, 13),
)
EXIT_INDEX = 14


def open_source(request: MountRequest) -> Dataset:
    """Open the dataset. Raises MountError with the exit status for the error."""
    try:
        dataset = request.open_dataset(request.source)
        if dataset.is_indexed and (reason := why_unservable(dataset, strict=request.strict)):
            raise FormatError(reason, path=request.source)
        if request.verify:
            extender()  # before anybody waits for a file
            if lacking := without_checksums(dataset):
                problem = f"--verify: {counted(len(lacking), 'shard')} without checksums, {lacking[0]} for one"
                raise UsageError(f"{problem}: `touchfs verify --write` writes them", path=request.source)
        return dataset
    except TouchfsError as error:
        if isinstance(error, SourceError) and is_inside(error.path or "", request.index_dir):
            message = f"{error}; --no-index-cache keeps the index in memory"
            raise MountError(message, exit_status=EXIT_INDEX) from error
        status = next((status for kind, status in _SOURCE_STATUSES if isinstance(error, kind)), 1)
        raise MountError(str(error), exit_status=status) from error
