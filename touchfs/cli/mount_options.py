"""`-o NAME,NAME=VALUE`: the options of `touchfs mount` as mount(8), /etc/fstab and automounters write them.

`--some-name=VALUE` is `some_name=VALUE`; `-` and `_` are interchangeable. A comma in a value is written `\\,`, or the
value is in double quotes. Words of mount(8) have their meaning, or are dropped if they mean nothing here. All others
are refused.
"""

from __future__ import annotations

import os
from difflib import get_close_matches

import click

from touchfs.cli.command import Command

# Words of mount(8) that are the default here, or that are for mount(8) and service managers. `touchfs mount` always
# sets ro, noatime, nosuid, nodev and default_permissions.
_DROPPED = (
    *("defaults", "auto", "noauto", "user", "nouser", "users", "nousers", "owner", "noowner", "group", "nogroup"),
    *("nofail", "_netdev", "comment", "suid", "nosuid", "dev", "nodev", "sync", "async", "silent", "loud"),
    *("default_permissions", "atime", "noatime", "relatime", "norelatime", "strictatime", "nostrictatime"),
    *("lazytime", "nolazytime", "diratime", "nodiratime", "ro", "rw"),
)
_DROPPED_PREFIXES = ("x-", "X-")
# Of two opposite words the last one counts.
_OPPOSITES = {"exec": "noexec"}
_REFUSED = {
    "max_read": "the kernel and touchfs agree on it",
    "read_only": "every mount is, and `control=none` leaves out the control files",
    "auto_unmount": "touchfs unmounts when it ends",
    "setuid": "mount.fuse3 does it, for the type fuse.touchfs",
    "drop_privileges": "mount.fuse3 does it, for the type fuse.touchfs",
    "remount": "unmount, and mount again; `touchfs reload` shows changed shards",
}
_ENVIRONMENT = "env."
# What `--kernel` without a value is.
KERNEL_ONLY = "--kernel=only"


class MountCommand(Command):
    """A command with an option `-o`, whose words become the command's own options, before those that are given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Sets the environment variables that `-o env.NAME=VALUE` names."""
        args = [KERNEL_ONLY if each == "--kernel" else each for each in args]  # the next word is not its value
        if ctx.resilient_parsing:  # for a completion, no option has an effect
            return super().parse_args(ctx, args)
        found, *_ = self.make_parser(ctx).parse_args(list(args))
        try:
            words = [word for text in found.get("mount_options", []) for word in split_words(text)]
            arguments = self._arguments(words)
        except click.UsageError as error:
            error.ctx = ctx
            raise
        rest = super().parse_args(ctx, [*arguments, *args])
        for option in self.words().values():
            # Without a prefix, paths are relative to the mount.
            if option.name != "path_prefix" and ctx.params.get(option.name or "") == "":
                raise click.BadParameter("the value is empty: is a variable unset?", ctx, option)
        return rest

    def _arguments(self, words: list[str]) -> list[str]:
        options = self.words()
        found: list[tuple[str, str]] = []
        for word in words:
            written, has_value, value = word.partition("=")
            name = written.replace("-", "_")
            if name in _REFUSED:
                raise click.UsageError(f"-o {written} cannot be used: {_REFUSED[name]}")
            if written.startswith(_ENVIRONMENT):
                _set_variable(written, value if has_value else None)
            elif name in _OPPOSITES:
                found = [each for each in found if each[0] != _OPPOSITES[name]]
            elif name in options:
                option = options[name]
                if name == "kernel" and not has_value:
                    found.append((name, KERNEL_ONLY))
                    continue
                if not (option.is_flag or has_value):
                    raise click.UsageError(f"-o {written} needs a value: {written}=VALUE")
                found.append((name, f"{option.opts[-1]}={value}" if has_value else option.opts[-1]))
            elif name not in _DROPPED and not written.startswith(_DROPPED_PREFIXES):
                raise click.UsageError(_unknown(written, name, [*options, *_DROPPED]))
        return [argument for _, argument in found]

    def words(self) -> dict[str, click.Option]:
        """The options by their names in `-o`."""
        options = [each for each in self.params if isinstance(each, click.Option)]
        return {each.opts[-1][2:].replace("-", "_"): each for each in options if each.opts[-1].startswith("--")}


def complete_words(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The completions of the last word of `-o`."""
    before, comma, last = incomplete.rpartition(",")
    if not isinstance(context.command, MountCommand):
        return []
    shown = {name: option for name, option in context.command.words().items() if not option.hidden}
    options = [name if option.is_flag else f"{name}=" for name, option in shown.items()]
    words = sorted([*options, "ro", "nofail", "_netdev"])
    return [f"{before}{comma}{word}" for word in words if word.startswith(last.replace("-", "_"))]


def split_words(text: str) -> list[str]:
    """Split the value of `-o` at commas, as mount(8) does. Raises click.UsageError for a quote that is not closed."""
    words, word, is_quoted = [], "", False
    characters = iter(text)
    for character in characters:
        if character == "\\":
            following = next(characters, "")
            word += following if following and following in ',"\\' else character + following
        elif character == '"':
            is_quoted = not is_quoted
        elif character == "," and not is_quoted:
            words.append(word)
            word = ""
        else:
            word += character
    if is_quoted:
        raise click.UsageError(f"-o {text}: a quote is not closed")
    return [each for each in (*words, word) if each]


def _set_variable(written: str, value: str | None) -> None:
    """Set the variable of `env.NAME=VALUE`. Raises click.UsageError without a name or a value."""
    variable = written.removeprefix(_ENVIRONMENT)
    if not variable:
        raise click.UsageError(f"-o {written} needs a name: {_ENVIRONMENT}NAME=VALUE")
    if value is None:
        raise click.UsageError(f"-o {written} needs a value: {written}=VALUE")
    os.environ[variable] = value


def _unknown(written: str, name: str, known: list[str]) -> str:
    nearest = get_close_matches(name, known, 1)
    return f"-o {written} is unknown{f': did you mean {nearest[0]}?' if nearest else ''}"
