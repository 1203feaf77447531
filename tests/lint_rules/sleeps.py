"""Tests do not sleep for a fixed time: on a busy machine it is too short, and on all others it is lost."""

import ast
from collections.abc import Iterator, Mapping, Sequence

from lint_rules.source import Fault, Source, tests

OWN = "tests/lint_rules/sleeps.py"
CLOCKS = {"time", "trio", "asyncio"}
# Files that may sleep for a fixed time, and why.
ALLOWED: dict[str, str] = {
    "tests/bench/beside_steps.py": "not yet looked at",
    "tests/bench/daemons.py": "not yet looked at",
    "tests/bench/hung_shards.py": "not yet looked at",
    "tests/bench/mount_scale.py": "not yet looked at",
    "tests/bench/remote.py": "not yet looked at",
    "tests/bench/remount.py": "not yet looked at",
    "tests/bench/tar_shards.py": "not yet looked at",
    "tests/caches/test_write_cache_publish.py": "a builder takes a moment, in which a second one would be seen",
    "tests/cli/killing.py": "jobs of some ten milliseconds are killed in the middle: it looks each millisecond",
    "tests/mount/fatal_daemon.py": "one of its requests takes a third of a second",
    "tests/mount/test_mount_changes.py": "files are looked at once a second",
    "tests/mount/test_mount_hung.py": "that a worker is not taken for stuck shows when that time is over",
    "tests/mount/test_mount_life.py": "that a worker is not taken for stuck shows when that time is over",
    "tests/mount/test_mount_messages.py": "that a signal does not end a program shows when one that does would have",
    "tests/mount/test_mount_numbers.py": "a request waits for a time that is counted",
    "tests/mount/test_mount_parquet.py": "a file is looked at once a second, and what was read before stays in memory",
    "tests/mount/test_mount_remote.py": "a store takes a while to answer",
    "tests/mount/test_mount_strikes.py": "that a worker is not taken for stuck shows when that time is over",
    "tests/node/random_graphs.py": "items that are made so slowly that a prefetcher is met while it waits",
    "tests/numbers/test_metrics_server.py": "how slowly a client sends",
    "tests/range_server.py": "a fault of a server: an answer that comes late",
    "tests/source/test_remote_attempts.py": "a request takes a moment, in which one too many would be seen",
    "tests/source/test_remote_stores.py": "the emulator of Google's store numbers versions by its clock",
    "tests/store/test_opens.py": "a step takes a while, in which others ask for its text",
    "tests/store/test_store.py": "time passes that does not count",
    "tests/supervision/scripted.py": "the clock is virtual",
    "tests/supervision/test_reloader.py": "the clock is virtual",
    "tests/supervision/test_supervisor.py": "the clock is virtual",
}


def names_of_sleep(source: Source) -> set[str]:
    """How this file calls the `sleep` of a clock."""
    names = set()
    for node in source.nodes:
        match node:
            case ast.Import():
                names |= {f"{each.asname or each.name}.sleep" for each in node.names if each.name in CLOCKS}
            case ast.ImportFrom(module=module) if module in CLOCKS:
                names |= {each.asname or each.name for each in node.names if each.name == "sleep"}
            case _:
                pass
    return names


def is_fixed(value: ast.expr) -> bool:
    """Whether it is a number, a constant of a module, or made of these."""
    match value:
        case ast.Constant():
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()
        case ast.UnaryOp(operand=operand):
            return is_fixed(operand)
        case ast.BinOp(left=left, right=right):
            return is_fixed(left) and is_fixed(right)
        case _:
            return False


def fixed_sleeps(source: Source) -> Iterator[int]:
    """The lines of the calls."""
    names = names_of_sleep(source)
    for node in source.nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) in names:
            values = [*node.args, *(each.value for each in node.keywords)]
            if values and all(map(is_fixed, values)):
                yield node.lineno


def sleeps(sources: Sequence[Source], allowed: Mapping[str, str] = ALLOWED) -> Iterator[Fault]:
    # Most tests do not name it: they are not parsed.
    found = {each.path: list(fixed_sleeps(each)) for each in tests(sources) if "sleep" in each.text}
    for path, lines in found.items():
        for line in lines if path not in allowed else ():
            yield Fault(path, line, f"sleeps for a fixed time: wait for what must happen, or say why not in {OWN}")
    for path in allowed:
        if not found.get(path):
            yield Fault(OWN, 1, f"{path} no longer sleeps for a fixed time: delete its line")
