"""Commands whose help has options in groups. `--help-all` shows those that many commands share, `--help` names them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from shlex import quote
from typing import Any

import click
from click.core import ParameterSource

# The key of a context whose command shows all options in its help.
_ALL = "touchfs.help_all"
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class _Option(click.Option):
    """An option of the group with this title; with `is_folded`, `--help` only names the group."""

    def __init__(self, *names: Any, group: str, is_folded: bool = False, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.group, self.is_folded = group, is_folded


def options_in(group: str, *, is_folded: bool = False) -> Callable[..., Decorator]:
    """Return a decorator like `click.option`, whose options are in a group of the help."""
    return partial(click.option, cls=_Option, group=group, is_folded=is_folded)


dataset_option = options_in("What the dataset is", is_folded=True)
remote_option = options_in("Remote storage", is_folded=True)
cache_option = options_in("Caches", is_folded=True)
limit_option = options_in("Limits", is_folded=True)
state_option = options_in("Where iterators are kept", is_folded=True)


def _show_all(context: click.Context, parameter: click.Parameter, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:
        context.meta[_ALL] = True
        click.echo(context.get_help())
        context.exit()


HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help="Show all options."
)


class Command(click.Command):
    """A command. If it takes one dataset, and gets several, the error says how to name them."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters, with those for help."""
        *own, last = super().get_params(ctx)
        return [*own, HELP_ALL, last] if any(map(_is_folded, own)) else [*own, last]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group."""
        groups = dict[str, list[tuple[str, str]]]({"Options": []})
        folded = list[str]()
        for parameter in self.get_params(ctx):
            group = parameter.group if isinstance(parameter, _Option) else "Options"
            if _is_folded(parameter) and not ctx.meta.get(_ALL):
                folded.append(group)
            elif isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)) is not None:
                groups.setdefault(group, []).append(record)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)
        if folded:
            formatter.write_paragraph()
            titles = ", ".join(title[0].lower() + title[1:] for title in dict.fromkeys(folded))
            formatter.write(f"{ctx.command_path} --help-all also shows: {titles}\n")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        names = [
            each for each in args if not each.startswith("-") and os.path.splitext(each)[1] and os.path.exists(each)
        ]
        try:
            return super().parse_args(ctx, list(args))
        except click.MissingParameter as error:
            words = self._words(ctx, args)
            given = sum(word is not None for word in words.values())
            if error.param in words and given < len(words):
                # The first words are the first arguments, even if these take several.
                raise click.MissingParameter(ctx=ctx, param=list(words)[given]) from error
            raise
        except click.UsageError as error:
            if not error.message.startswith("Got unexpected extra argument"):
                raise
            first = str(self._positional[0].metavar) if self._positional else ""
            if len(names) > 1:  # the shell has made them of a pattern
                directory, name = os.path.split(names[0])
                pattern = os.path.join(directory, f"*{os.path.splitext(name)[1]}")
                message = f"several datasets: name the directory, or quote a pattern of the shards, as {quote(pattern)}"
            elif first.startswith("DATASET") or first == "IN":
                message = f"takes one {first}: run it for each, or name a directory of all"
            else:
                raise
            raise click.UsageError(message, ctx) from error

    def _words(self, ctx: click.Context, args: list[str]) -> dict[click.Argument, Any]:
        """What the parser has for each argument; None for no word."""
        found, *_ = self.make_parser(ctx).parse_args(list(args))
        words = ((each, found.get(each.name)) for each in self._positional)
        # For no word, versions of click have different values.
        return {each: value if value and isinstance(value, str | tuple) else None for each, value in words}

    @property
    def _positional(self) -> list[click.Argument]:
        return [each for each in self.params if isinstance(each, click.Argument)]


class DatasetsCommand(Command):
    """A command of several datasets whose last word may be left out after one of them: it is `-` then."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        datasets, *others = self._words(ctx, args).values()
        if datasets is not None or None in others:
            return super().parse_args(ctx, args)
        rest = super().parse_args(ctx, [*args, "-"])
        ctx.set_parameter_source(str(self._positional[-1].name), ParameterSource.DEFAULT)
        return rest


def _is_folded(parameter: click.Parameter) -> bool:
    return isinstance(parameter, _Option) and parameter.is_folded
