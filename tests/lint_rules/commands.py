"""Every command is a file of touchfs/cli, and the other way round."""

import ast
from collections.abc import Iterator, Sequence

from lint_rules.source import Fault, Source, code, public

ROOM = "touchfs/cli"
MAIN = f"{ROOM}/main.py"
# A command of another name: mount(8) starts it as mount.touchfs.
HELPER = f"{ROOM}/mount_helper.py"


def commands(sources: Sequence[Source]) -> Iterator[Fault]:
    """A file of a command defines `command` at its top level; other files of the room do not."""
    defined, listed, line = {}, set[str](), 1
    for source in code(sources):
        if source.room == ROOM:
            for node in public(source.tree.body):
                if node.name == "command" and source.path != HELPER:
                    defined[source.module.rpartition(".")[2]] = source.path, node.lineno
        for node in source.tree.body if source.path == MAIN else ():
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SECTIONS":
                sections, line = ast.literal_eval(node.value).values(), node.lineno
                listed = {name for section in sections for name in section}
    for name in defined.keys() - listed:
        yield Fault(*defined[name], f"SECTIONS of {MAIN} does not name this command: add it")
    for name in listed - defined.keys():
        yield Fault(MAIN, line, f"{ROOM}/{name}.py does not define `command`: write it, or take {name} out of SECTIONS")
