"""`touchfs mount --kernel`: which options it takes, and when a plain mount takes its place."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from touchfs.cli.dataset_argument import open_indexed
from touchfs.cli.dataset_options import ReadOptions
from touchfs.cli.progress import progress_bar
from touchfs.cli.terminal import announce
from touchfs.dataset import Dataset
from touchfs.indexing import list_dataset
from touchfs.indexing.silent import PATIENCE_SECONDS

if TYPE_CHECKING:
    from touchfs_mount.mounting.request import MountRequest

ONLY, AUTO = "only", "auto"
# Options that nobody could follow where no daemon runs.
_OF_DAEMONS = frozenset(
    (
        *("foreground", "trace", "workers", "verify", "prefetch", "prefetch_rate", "indexing", "indexing_walk"),
        *("no_index_cache", "allow_root", "fsname", "control", "path_prefix", "control_mode", "durability"),
        *("ids", "prefetch_steps", "state_dir", "state_store", "log_file", "log_level", "metrics", "metrics_public"),
    )
)

log = logging.getLogger(__name__)


def mount_image(request: MountRequest, read_options: ReadOptions, kernel: str) -> bool:
    """Mount an image as `--kernel` says. False if a plain mount is to take its place. Raises as `image_mount`."""
    from touchfs_mount.mounting import image_mount
    from touchfs_mount.mountpoints.erofs import UnfitError

    patience_seconds = read_options.timeout_seconds or PATIENCE_SECONDS
    open_all = partial(open_indexed, read_options=read_options, patience_seconds=patience_seconds)
    try:
        _check_options()
        with progress_bar("writing the image", "shards") as progress:
            image_mount.mount_image(
                replace(request, open_dataset=open_all),
                partial(_listed, request.source, read_options),
                progress,
                announce,
            )
    except UnfitError as error:
        if kernel == ONLY:
            raise
        log.warning("mounted by a daemon: %s", error.reason)
        return False
    return True


def _listed(path: str, read_options: ReadOptions) -> Dataset:
    return list_dataset(path, options=read_options.options, in_place=read_options.in_place)


def _check_options() -> None:
    from touchfs_mount.mountpoints.erofs import UnfitError

    context = click.get_current_context()
    for option in context.command.params:
        if option.name in _OF_DAEMONS and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            raise UnfitError(f"{option.opts[-1]} needs a daemon", exit_status=2)
