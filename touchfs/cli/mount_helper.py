"""mount.touchfs: the helper of mount(8), for `mount -t touchfs` and /etc/fstab. It is touchfs under another name."""

from __future__ import annotations

import os
import sys

import click

from touchfs.cli.dataset_argument import PATH
from touchfs.cli.mount import command as mount_command
from touchfs.core.location import Location

HELPER = "mount.touchfs"
TYPES = ("touchfs", "fuse.touchfs")


# The arguments are those of EXTERNAL HELPERS in mount(8).
@click.command(HELPER, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("path", metavar="DATASET", type=PATH)
@click.argument("mountpoint", type=PATH)
@click.option("-o", "mount_options", metavar="OPTIONS", multiple=True, help="Options of `touchfs mount`, with commas.")
@click.option("-f", "fake", is_flag=True, help="Check the options, but do not mount.")
@click.option("-N", "namespace", metavar="FILE", help="Mount in this mount namespace, where touchfs must be, too.")
@click.option("-t", "kind", metavar="TYPE", default="touchfs", help="touchfs, or fuse.touchfs.")
@click.option("-s", "_sloppy", is_flag=True, expose_value=False, help="No effect.")
@click.option("-n", "_no_mtab", is_flag=True, expose_value=False, help="No effect.")
@click.option("-v", "_verbose", count=True, expose_value=False, help="No effect.")
def command(
    path: str, mountpoint: str, mount_options: tuple[str, ...], fake: bool, namespace: str | None, kind: str
) -> int:
    """Mount a dataset for mount(8), which runs this for the type touchfs. `touchfs mount --help` lists the OPTIONS.

    \b
    Example:
      mount.touchfs -f shards/ /mnt/speech -o ro,nofail
    """
    if kind not in TYPES:
        raise click.UsageError(f"the type {kind} is not supported: use touchfs")
    options = [argument for each in mount_options for argument in ("-o", each)]
    if namespace is not None:
        fake_option = ["-f"] if fake else []
        paths = (Location.of(path).absolute.path, os.path.abspath(mountpoint))  # nsenter goes to the root directory
        arguments = [sys.argv[0], *fake_option, *options, "--", *paths]
        os.execvp("nsenter", ["nsenter", f"--mount={namespace}", "--", *arguments])
    arguments = [*options, "--", path, mountpoint]
    if fake:
        mount_command.make_context(HELPER, arguments)
        return 0
    status: int = mount_command.main(arguments, prog_name=HELPER, standalone_mode=False)
    return status
