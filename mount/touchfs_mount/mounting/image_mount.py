"""`touchfs mount --kernel`: an image of the dataset, mounted. Nothing runs afterwards."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

from touchfs.core.errors import ChangedError, MountError, NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.core.location import Location
from touchfs.core.progress import Progress
from touchfs.core.urls import shown
from touchfs.dataset import Dataset, counted
from touchfs.images.devices import Device
from touchfs.images.kept import KeptImage, find_or_make
from touchfs.images.plan import ImagePlan, plan_image, why_no_image
from touchfs.indexing.place import make_place
from touchfs.posix import links
from touchfs.posix.mounts import NETWORK_FILE_SYSTEMS, mounts, reached
from touchfs_mount.mounting.image_owners import image_owners
from touchfs_mount.mounting.overlap import refuse_nesting
from touchfs_mount.mounting.request import MountRequest
from touchfs_mount.mounting.source import open_source
from touchfs_mount.mountpoints import image_records, mountpoint
from touchfs_mount.mountpoints.erofs import UnfitError, attach, made
from touchfs_mount.mountpoints.kernel_check import check_kernel
from touchfs_mount.mountpoints.options import mount_error

# Descriptors that this process has beside those of devices.
_DESCRIPTORS_ELSE = 64


def mount_image(
    request: MountRequest,
    list_shards: Callable[[], Dataset],
    progress: Progress,
    say: Callable[[str], None],
) -> None:
    """Mount an image of a dataset, which is made if it is not there. `list_shards` finds its shards without indexing.

    Raises UnfitError if a plain mount is needed, and MountError as `mounting.mount`.
    """
    path = request.options.path
    try:
        refuse_nesting(Location.of(request.source).absolute.path, path)
        make_place(request.index_dir)
        check_kernel(request.index_dir)
        if request.options.allow_other:
            links.guard()
        _check_shards(list_shards())
        dataset = open_source(request)
        refuse_nesting(Location.of(request.source).resolved, path)
        plan = _plan(dataset)
        _check_local(device.full_path for device in plan.devices)
        owners = image_owners(dataset, request.modes, allow_other=request.options.allow_other)
        with _unfit():
            image = find_or_make(plan, owners, by_key=request.control.list_by_key, progress=progress)
    except MountError:
        raise
    except UsageError as error:
        raise MountError(str(error), exit_status=2) from error
    except TouchfsError as error:
        raise MountError(str(error), exit_status=mountpoint.EXIT_MOUNT_FAILED) from error
    try:
        _mount(request, plan, image)
    finally:
        os.close(image.descriptor)
    say(f"{shown(request.source)} is mounted at {path} by the kernel ({_summary(plan, image)})")


def _check_shards(dataset: Dataset) -> None:
    """Raise UnfitError if a shard cannot be in an image, or as `_check_local`."""
    for shard in dataset.listed:
        if reason := why_no_image(shard, dataset.limits.audio_root):
            raise UnfitError(f"an image has no files {reason}", path=shard.path)
    _check_local(shard.path for shard in dataset.listed)


def _check_local(paths: Iterable[str]) -> None:
    """Raise UnfitError if the file system of a path may not answer the kernel."""
    there = list(mounts())
    kinds = dict[str, str]()
    for path in paths:
        directory = os.path.dirname(os.path.realpath(path))
        if directory not in kinds:
            found = reached(directory, there)
            kinds[directory] = "" if found is None else found.kind
        if kinds[directory] in NETWORK_FILE_SYSTEMS:
            raise UnfitError(f"the data are on another machine ({kinds[directory]})", path=path)


def _plan(dataset: Dataset) -> ImagePlan:
    with _unfit():
        plan = plan_image(dataset)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and len(plan.devices) > most - _DESCRIPTORS_ELSE:
        problem = f"{len(plan.devices):,} files have to be open at once, and a process may open {most:,} (ulimit -Hn)"
        raise UnfitError(problem, path=dataset.source)
    return plan


@contextmanager
def _unfit() -> Iterator[None]:
    """Raise UnfitError if an image cannot have what was asked for: a plain mount can."""
    try:
        yield
    except UsageError as error:
        raise UnfitError(error.message, path=error.path) from error


@contextmanager
def _opened(devices: Sequence[Device]) -> Iterator[list[tuple[int, os.stat_result]]]:
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(devices) + _DESCRIPTORS_ELSE
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, most))
    with ExitStack() as stack:
        found = []
        for device in devices:
            descriptor, status = device.open()
            stack.callback(os.close, descriptor)
            found.append((descriptor, status))
        yield found


def _mount(request: MountRequest, plan: ImagePlan, image: KeptImage) -> None:
    path = request.options.path
    claim = mountpoint.claim_directory(path)
    number = None
    try:
        with (
            _opened(plan.devices) as devices,
            made(
                image.descriptor,
                [*(each for each, _ in devices), image.descriptor],
                noexec=request.options.noexec,
            ) as mounted,
        ):
            status = os.fstat(mounted).st_dev
            number = f"{os.major(status)}:{os.minor(status)}"
            record = image_records.ImageRecord(
                file_system=os.fstatvfs(mounted).f_fsid,
                source=Location.of(request.source).absolute.shown,
                image=image.path,
                since=datetime.now(UTC).isoformat(timespec="seconds"),
                shards=len(plan.shards),
                files=image.files,
                devices=[
                    (each.full_path, found.st_size, found.st_mtime_ns, found.st_ino)
                    for each, (_, found) in zip(plan.devices, devices, strict=True)
                ],
                is_created=claim.created,
            )
            image_records.clean()
            image_records.write(number, record)
            try:
                attach(mounted, path)
            except OSError as error:
                raise mount_error(f"mount failed: {error.strerror}", path) from error
        claim.release()
    except BaseException as error:
        if number is not None:
            image_records.remove(number)
        claim.remove()
        if isinstance(error, ChangedError | NotFoundError | SourceError):
            raise MountError(str(error), exit_status=12) from error
        raise


def _summary(plan: ImagePlan, image: KeptImage) -> str:
    parts = [f"{counted(len(plan.shards), 'shard')}, {counted(image.files, 'file')}"]
    if left_out := str(image.left_out):
        parts.append(f"left out: {left_out}")
    if damaged := image.left_out.damaged:
        name, reason = next(iter(damaged.items()))
        parts.append(f"left out: {counted(len(damaged), 'damaged shard')}, {name} for one: {reason}")
    return "; ".join(parts)
