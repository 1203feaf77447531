"""touchfs mount"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from touchfs.cli.command import options_in, state_option
from touchfs.cli.dataset_argument import PATH, datasets_argument
from touchfs.cli.dataset_options import ReadOptions, dataset_options, ids_option
from touchfs.cli.importing import imports
from touchfs.cli.limit_options import Seconds
from touchfs.cli.mount_options import MountCommand, complete_words
from touchfs.cli.mounted_dataset import BACKGROUND, TOUCH, WAIT, open_mounted
from touchfs.cli.mounted_image import AUTO, ONLY, mount_image
from touchfs.cli.remote_options import parse_rate
from touchfs.cli.state_options import state_database_options
from touchfs.cli.terminal import announce, exit_at_once, log_to_stderr
from touchfs.core.errors import MountError
from touchfs.core.extras import install_hint
from touchfs.core.location import Location
from touchfs.indexing.place import index_place
from touchfs.indexing.silent import PATIENCE_SECONDS

if TYPE_CHECKING:
    from touchfs.iterators.store_place import StateDatabase

LOG_LEVELS = ("debug", "info", "warning", "error")


def octal(value: str) -> int:
    """Parse permission bits in octal, as chmod does. Raises click.BadParameter."""
    try:
        bits = int(value, 8)
    except ValueError:
        bits = -1
    if not 0 <= bits <= 0o777:
        raise click.BadParameter(f"{value!r} is not an octal mode such as 0666")
    return bits


def number(value: str) -> int:
    """Parse the number of a user or group. Raises click.BadParameter."""
    if not (value.isascii() and value.isdigit() and int(value) < (1 << 32) - 1):
        raise click.BadParameter(f"{value!r} is not a number: `id -u USER` and `getent group GROUP` print it")
    return int(value)


# The kernel takes 4,096 bytes of options, of which the source of the mount is one.
_SOURCE_MAX = 3500
_serving = options_in("Serving the data")
_access = options_in("Who may read")
_iterators = options_in("Control files and iterators")
_logs = options_in("Logs and metrics")


@click.command("mount", cls=MountCommand, context_settings={"show_default": True})
@datasets_argument("path", "DATASET")
@click.argument("mountpoint", type=PATH)
@click.option(
    "-o",
    "mount_options",
    metavar="OPTIONS",
    multiple=True,
    expose_value=False,
    shell_complete=complete_words,
    help="These options as in /etc/fstab: --log-level=debug is log_level=debug. See docs/mounting.md.",
)
@click.option("-f", "--foreground", is_flag=True, help="Stay in the foreground and log to stderr. Ctrl-C unmounts.")
@click.option("-d", "--trace", is_flag=True, help="-f, --log-level debug, and a line for each request on stderr.")
@_serving(
    "--kernel",
    type=click.Choice([ONLY, AUTO]),
    metavar="[=auto]",
    help="Have Linux itself read the files, by an image: as root, with no daemon and no control files. "
    "auto: where that is possible.",
)
@_serving("--workers", type=click.IntRange(1, 64), default=1, help="Number of processes that serve requests.")
@_iterators(
    "--control",
    metavar="DIR|none",
    help="Where to mount the control files, to which .touchfs leads; none leaves out them and the iterators.",
)
@_access("--noexec", is_flag=True, help="Set noexec. Files are never executable anyway.")
@_access("--list-by-key", is_flag=True, help="List the files of by-key/. Without it they are found by name only.")
@_access("--allow-other", is_flag=True, help="Give other users access. Needs user_allow_other in /etc/fuse.conf.")
@_access("--allow-root", is_flag=True, help="Give root access, as --allow-other does, but nobody else.")
@_access("--fsname", metavar="NAME", help="Source of the mount in mountinfo. [default: DATASET]")
@click.option("--subtype", type=click.Choice(["touchfs"]), hidden=True, expose_value=False)
@_access("--uid", type=number, metavar="N", help="Owner of all files. [default: you; --allow-other: DATASET's owner]")
@_access("--gid", type=number, metavar="N", help="Group of all files. [default: as for --uid]")
@_access(
    "--umask", type=octal, metavar="MODE", help="Permission bits to remove from all files. [default: as for --uid]"
)
@_access("--fmask", type=octal, metavar="MODE", help="Permission bits to remove from files. [default: --umask]")
@_access("--dmask", type=octal, metavar="MODE", help="Permission bits to remove from directories. [default: --umask]")
@_iterators("--path-prefix", metavar="DIR", help="Prefix of the paths that iterators print. [default: MOUNTPOINT]")
@_iterators(
    "--control-mode",
    type=octal,
    metavar="MODE",
    default="0",
    help="Extra permission bits for iterator files, in octal.",
)
@_iterators(
    "--durability",
    type=click.Choice(["os", "fsync"]),
    default="os",
    help="Iterator steps survive a crash of touchfs (os), or also a power failure (fsync).",
)
@_iterators(
    "--prefetch-steps",
    type=click.IntRange(0, 1024),
    default=0,
    metavar="N",
    help="Read the files of the next N steps of an iterator ahead, for remote data.",
)
@ids_option(_iterators)
@_serving("--prefetch", is_flag=True, help="Download all remote shards into the local cache, in the background.")
@_serving("--prefetch-rate", metavar="SIZE", help="With --prefetch, fetch at most this much a second.")
@_serving(
    "--indexing",
    type=click.Choice([WAIT, BACKGROUND, TOUCH]),
    help="Index shards before the mount is there (wait), meanwhile (background), or when somebody looks into them "
    "(touch). [default: background; for data of other machines touch; with --strict, --verify, --state-store wait]",
)
@_serving(
    "--indexing-walk",
    type=click.IntRange(0),
    metavar="N",
    default=100,
    help="With --indexing touch, shards that a program may index a minute by listing them, as find does. 0: no limit.",
)
@_serving("--no-index-cache", is_flag=True, help="Keep the index in memory until the mount ends.")
@state_option("--state-dir", type=click.Path(), help="Directory for the state of mounts. [default: the user's]")
@state_database_options
@_logs(
    "--log-file",
    type=click.Path(),
    help="Log file. [default: stderr with -f, else the journal, or a file in the state directory]",
)
@_logs("--log-level", type=click.Choice(LOG_LEVELS), default="info", help="Lowest level of messages to log.")
@_logs(
    "--metrics",
    metavar="PORT|unix:PATH",
    help="Serve the mount's metrics to Prometheus at a port of this machine (0: a free one) or a unix socket.",
)
@_logs("--metrics-public", is_flag=True, help="Serve metrics at all addresses of this machine.")
@click.option("--stuck-seconds", type=Seconds(0.1), default=10.0, hidden=True)  # a worker stuck so long is replaced
@_serving("--verify", is_flag=True, help="Compare files with the checksums that `touchfs verify --write` has written.")
@_serving("--strict", is_flag=True, help="Fail if any shard has errors, even in interleaved/.")
@click.option("--wait-timeout", type=Seconds(1), default=600.0, hidden=True)  # for the mount to be ready
@dataset_options
def command(
    path: str,
    mountpoint: str,
    foreground: bool,
    trace: bool,
    kernel: str | None,
    workers: int,
    control: str | None,
    noexec: bool,
    list_by_key: bool,
    allow_other: bool,
    allow_root: bool,
    fsname: str | None,
    uid: int | None,
    gid: int | None,
    umask: int | None,
    fmask: int | None,
    dmask: int | None,
    path_prefix: str | None,
    control_mode: int,
    durability: str,
    prefetch_steps: int,
    ids: tuple[str, ...],
    prefetch: bool,
    prefetch_rate: str | None,
    indexing: str | None,
    indexing_walk: int,
    no_index_cache: bool,
    state_dir: str | None,
    state_database: StateDatabase | None,
    log_file: str | None,
    log_level: str,
    metrics: str | None,
    metrics_public: bool,
    stuck_seconds: float,
    verify: bool,
    strict: bool,
    wait_timeout: float,
    read_options: ReadOptions,
) -> int:
    """Mount a dataset as a directory of ordinary files.

    DATASET is a shard, a directory of shards, a pattern in quotes, or a data.list; several are one, in their order.
    Shards without an index are indexed, and large compressed ones decompressed, while the others are served. The
    command returns when the mount answers; the mount continues in the background.
    MOUNTPOINT may be /dev/fd/N, a descriptor of /dev/fuse that somebody else has mounted.

    \b
    Example:
      touchfs mount shards/ /mnt/speech
      touchfs umount /mnt/speech

    \b
    Exit status:
      0  mounted (with -f: unmounted)     13 dataset is damaged or of no known format
      1  any other error                  14 index cannot be written
      2  wrong usage                      15 FUSE, or the fuse extra, is not available
      10 mount point cannot be used       16 not permitted to mount
      11 dataset not found                17 not ready in time
      12 dataset cannot be read           32 mounting failed
    """
    if kernel is None:
        _import_daemon()
    with imports():
        from touchfs_mount.beside.indexing import BackgroundIndexer
        from touchfs_mount.beside.prefetching import Prefetcher
        from touchfs_mount.control.facts import ControlOptions
        from touchfs_mount.logs.logs import LogOptions
        from touchfs_mount.mounting.request import MountRequest
        from touchfs_mount.mountpoints.mountpoint import resolve
        from touchfs_mount.mountpoints.options import MountOptions
        from touchfs_mount.mountpoints.passed import adopt, passed_descriptor
        from touchfs_mount.numbers.sockets import parse_address
        from touchfs_mount.requests import access
    if not mountpoint:
        raise click.UsageError("the mount point is empty: is a variable unset?")
    if control == "":
        raise click.UsageError("--control is empty: is a variable unset?")
    has_control = control != "none"
    if state_database is not None and not has_control:
        raise click.UsageError("--control none leaves out the iterators, so leave out --state-store, too")
    if metrics_public and metrics is None:
        raise click.UsageError("--metrics-public needs --metrics")
    if allow_other and allow_root:
        raise click.UsageError("--allow-other includes --allow-root: use one of them")
    if prefetch_rate is not None and not prefetch:
        raise click.UsageError("--prefetch-rate needs --prefetch")
    if ids:
        from touchfs.select.ids.names import give

        give(ids)
    prefetcher = Prefetcher(None if prefetch_rate is None else parse_rate(prefetch_rate)) if prefetch else None
    log_to_stderr("%(levelname)s %(message)s")
    read_options = replace(read_options, in_memory=no_index_cache)
    if needing := [
        name for name, given in (("strict", strict), ("verify", verify), ("state-store", state_database)) if given
    ]:
        if indexing not in (None, WAIT):
            raise click.UsageError(f"--{needing[0]} needs all shards indexed, so leave out --indexing {indexing}")
        indexing = WAIT
    descriptor = passed_descriptor(mountpoint)
    control_descriptor = None if control is None else passed_descriptor(control)
    if control_descriptor is not None and descriptor is None:
        raise click.UsageError(
            "--control /dev/fd/N needs a mount point /dev/fd/M, which somebody else has mounted, too"
        )
    shown_source = Location.of(path).absolute.shown
    if fsname is None and len(os.fsencode(shown_source)) > _SOURCE_MAX:
        raise click.UsageError(
            "too many names for the source of a mount: name the directory, or quote a pattern of them"
        )
    options = MountOptions(
        path=mountpoint if descriptor is not None else resolve(mountpoint),
        fsname=shown_source if fsname is None else fsname,
        workers=workers,
        has_control=has_control,
        control=control if has_control and control_descriptor is None else None,
        control_descriptor=control_descriptor,
        noexec=noexec,
        allow_other=allow_other,
        allow_root=allow_root,
        stuck_seconds=stuck_seconds,
        timeout_seconds=read_options.timeout_seconds,
        trace=trace,
    )
    if descriptor is not None:
        options = adopt(options, descriptor, path_prefix)
    indexer = BackgroundIndexer(read_options.options, in_place=read_options.in_place, in_memory=read_options.in_memory)
    is_fixed = any(each is not None for each in (uid, gid, umask, fmask, dmask))
    request = MountRequest(
        source=path,
        open_dataset=partial(
            open_mounted,
            read_options=read_options,
            patience_seconds=read_options.timeout_seconds or PATIENCE_SECONDS,
            when=indexing,
            index_all=indexer.ask,
        ),
        indexer=indexer,
        prefetcher=prefetcher,
        index_dir=index_place(Location.of(path), in_place=read_options.in_place),
        options=options,
        split=read_options.options.split,
        state_dir=state_dir,
        state_database=state_database,
        log=LogOptions("debug" if trace else log_level, None if log_file is None else os.path.abspath(log_file)),
        strict=strict,
        verify=verify,
        listings_max=indexing_walk,
        control=ControlOptions(
            path_prefix,
            control_mode,
            durability == "fsync",
            iterators=has_control,
            list_by_key=list_by_key,
            prefetch_steps=prefetch_steps,
        ),
        metrics=None if metrics is None else parse_address(metrics, public=metrics_public),
        modes=access.fixed(uid, gid, umask or 0, fmask, dmask) if is_fixed else access.DEFAULT_MODES,
    )
    if kernel is not None and mount_image(request, read_options, kernel):
        return 0
    _import_daemon()
    from touchfs_mount.mounting import mounting

    status = mounting.mount(request, foreground=foreground or trace, wait_seconds=wait_timeout, say=announce)
    if not (foreground or trace):
        exit_at_once(status)
    return status


def _import_daemon() -> None:
    """Raise MountError if the extra of a mount by FUSE is not installed."""
    try:
        with imports():
            import touchfs_mount.mounting.mounting  # noqa: F401
    except ImportError as error:
        from touchfs_mount.mountpoints.mountpoint import EXIT_NO_FUSE  # this module does not need the extra

        raise MountError(
            f"mounting needs the fuse extra ({error.name or error}): install libfuse3-dev, pkg-config and gcc, "
            f"then `{install_hint('fuse')}`",
            exit_status=EXIT_NO_FUSE,
        ) from error
