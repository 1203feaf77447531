"""The examples of the README and of `docs/` are run as a reader pastes them, in order, and their output is compared.

Each page is pasted from its top into a directory that holds nothing but the checkout's `tests`, and the README into an
empty one: its reader may have no checkout. Each block of commands goes whole into one shell, and leaves it in the
directory where it began, as the next block is pasted there, too. Blocks of Python that follow each other go into one
interpreter.

Few readers are root. So another user pastes the README, with the installed command, and in a variant each page. Each
of his blocks of Python goes into an interpreter of its own, and his commands start a process for each CPU, as they do
by themselves. Of the README he has installed what it says, and no other extra; in a soak, of each page.
"""

import json
import os
import re
import shlex
import subprocess
import tempfile
import tomllib
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.metadata import packages_distributions
from itertools import groupby
from pathlib import Path

import pytest
from command import INSTALLED, TOUCHFS, fork_server, in_one_process
from own_mounts import own_mounts
from ports import free_port

ROOT = Path(__file__).parent.parent.parent
README = "README.md"
DOCS = ROOT / "docs"
PAGES = [ROOT / README, *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Behind the output of each command: its status.
STATUS = re.compile("\036([0-9]+)\036")
NOBODY = 65534
# What a page with examples begins with, and the README has: what to install for them.
INSTALL = re.compile(r"pip install '?\.(?:\[([\w,]+)\])?")
# Imported by each interpreter at its start: modules that it must not find.
BLOCKER = """
import os, sys
from importlib.machinery import PathFinder
BLOCKED = set(os.environ["BLOCKED_MODULES"].split())
class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in BLOCKED else PathFinder.find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""
# The port that docs/serving.md serves at. It may be taken, so that we use another one.
PORT = "8757"


def blocks_of(page):
    """Language and text of each block of a page."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def name_of(page):
    """The path of a page below `docs/`."""
    return page.relative_to(DOCS).as_posix() if page.is_relative_to(DOCS) else page.name


NAMED = {name_of(page): page for page in PAGES}
RUN = {
    name: [each for each in blocks_of(page) if each[0] in ("console", "bash", "python")] for name, page in NAMED.items()
}


# It reads the lists of files of all that is installed, which takes a second of processor.
installed_modules = cache(packages_distributions)


def modules_of(requirement):
    """The names of modules that a requirement of ours installs, without what it requires itself."""
    name = re.match(r"[\w.-]+", requirement)[0]
    with_aiohttp = ["aiohttp"] if "[http]" in requirement else []
    return with_aiohttp + [
        module for module, names in installed_modules().items() if name.lower() in map(str.lower, names)
    ]


def blocked_on(page):
    """The modules of the extras that the page does not name."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    (whole,) = extras.pop("all")
    extras["all"] = [each for extra in re.findall(r"\w+", whole.partition("[")[2]) for each in extras[extra]]
    named = re.findall(r"\w+", INSTALL.search(NAMED[page].read_text(encoding="utf-8"))[1] or "")
    modules = {extra: {name for each in needs for name in modules_of(each)} for extra, needs in extras.items()}
    installed = set().union(*(modules[extra] for extra in named))
    return set().union(*(modules[extra] for extra in extras.keys() - {"dev", "interop", "bench"})) - installed


@contextmanager
def as_this_user():
    yield [], TOUCHFS


@contextmanager
def as_another_user():
    with another_user() as before, fork_server(*before, owner=NOBODY) as (program, _):
        yield before, program


@contextmanager
def with_its_extras():
    """As another user, who has no other extras than those that the page names."""
    with another_user() as before:
        yield before, INSTALLED


@contextmanager
def another_user():
    """What to put before a command so that another user runs it.

    Our Python may be in a home that others cannot enter, so he may read everything; and /dev/fuse may be closed to him,
    so he has one of his own, in a mount namespace that ends with the tests.
    """
    device = "mknod fuse c 10 229 && chmod 666 fuse && mount --bind fuse /dev/fuse && echo ready && exec cat"
    assert os.geteuid() == 0, "this test becomes another user: run the tests as root"
    with tempfile.TemporaryDirectory() as devices:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(own_mounts(device), cwd=devices, **pipes) as holder:
            try:
                assert holder.stdout.readline() == b"ready\n", "this test needs a mount namespace of its own"
                capabilities = "-all,+dac_read_search"
                before = [
                    *("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt"),
                    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
                    *(f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}"),
                ]
                yield before
            finally:
                holder.stdin.close()


@pytest.fixture(scope="module")
def users():
    """For each kind of user what he has, which begins once: pytest would begin a parameter anew for each page."""
    with ExitStack() as begun:
        yield cache(lambda user: begun.enter_context(user()))


def shell_of(kind, block):
    """What a shell gets, and for each command what it shows."""
    if kind == "bash":
        return block, [("\n".join(block.splitlines()), None)]
    sessions = [session.partition("\n")[::2] for session in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return "".join(f"{command}\nprintf '\\036%d\\036' $?\n" for command, _ in sessions), sessions


def alone(command):
    """A command of a page, which starts no processes unless it says how many."""
    arguments = shlex.split(command[0])[1:]
    return " ".join([command[0], *in_one_process(*arguments)[len(arguments) :]])


def joined(blocks):
    """The blocks, of which those of Python that follow each other are one program."""
    for kind, group in groupby(blocks, lambda block: block[0]):
        texts = [text for _, text in group]
        if kind == "console":
            texts = [re.sub(r"(?<=^\$ )touchfs .*", alone, text, flags=re.MULTILINE) for text in texts]
        if kind == "python":
            texts = [f"for text in {texts!r}: exec(text, {{'__name__': '__main__'}})"]
        yield from ((kind, text) for text in texts)


PASTED = [name for name, blocks in RUN.items() if blocks]


@pytest.mark.parametrize(
    ("page", "user"),
    [
        (README, with_its_extras),
        pytest.param(README, as_this_user, marks=pytest.mark.variant),
        *((name, as_this_user) for name in PASTED if name != README),
        *(pytest.param(name, as_another_user, marks=pytest.mark.variant) for name in PASTED if name != README),
        *(pytest.param(name, with_its_extras, marks=pytest.mark.soak) for name in PASTED if name != README),
    ],
)
def test_every_example_of_a_page(public, users, page, user):
    before, program = users(user)
    place = public / "with spaces and ümläuts 空"
    (place / "bin").mkdir(parents=True)
    if page != README:
        (place / "tests").symlink_to(ROOT / "tests")
    (place / "bin/train-step").write_text('#!/bin/sh\nprintf "%s\\n" "$@" >> ~/trained\n')
    (place / "bin/train-step").chmod(0o755)
    programs = [place / "bin", program.parent, INSTALLED.parent]
    blocks = RUN[page]
    if not before:
        blocks = list(joined(blocks))
    else:
        os.chown(place, NOBODY, NOBODY)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "TMP"))}
    path = ":".join(map(os.fspath, [*programs, os.environ["PATH"]]))
    environment |= {"PATH": path, "LC_ALL": "C.UTF-8", "HOME": os.fspath(place)}
    if before and program == INSTALLED:
        (public / "blocker").mkdir()
        (public / "blocker/sitecustomize.py").write_text(BLOCKER)
        environment |= {"PYTHONPATH": os.fspath(public / "blocker"), "BLOCKED_MODULES": " ".join(blocked_on(page))}
    port = str(free_port())

    def run(*command):
        there = ["env", f"--chdir={place}"]  # in the user's mount namespace
        return subprocess.run([*before, *there, *command], env=environment, capture_output=True, text=True, check=False)

    try:
        for kind, block in blocks:
            if kind == "python":
                done = run("python", "-c", block)
                assert done.returncode == 0, f"{block}\n{done.stderr}"
                continue
            script, sessions = shell_of(kind, block.replace(PORT, port))
            done = run("bash", "-c", f"{script}\nprintf '\\036%d\\036%s' $? \"$PWD\"")
            *shown, _, directory = STATUS.split(done.stdout)
            assert directory == os.fspath(place), f"{block}\n{done.stderr}"
            statuses = [int(status) for status in STATUS.findall(done.stdout)]
            for (command, wanted), status, output in zip(sessions, statuses, shown[::2], strict=False):
                assert status == 0, f"$ {command}\n{done.stderr}"
                pattern = ".*" if wanted is None else re.escape(wanted).replace("…", ".*")
                assert re.fullmatch(pattern, output, re.DOTALL), f"$ {command}\n{output}"
        if any("train-step" in block for _, block in blocks):
            assert len((place / "trained").read_text().splitlines()) == 2
        assert run("findmnt", "-M", place / "mnt").returncode, "the page leaves its mount behind"
    finally:
        if not run("findmnt", "-M", place / "mnt").returncode and run("touchfs", "umount", "mnt").returncode:
            run("fusermount3", "-u", "-q", "-z", "mnt")


@pytest.mark.parametrize("page", [name for name in PASTED if name != README])
def test_a_page_with_examples_begins_with_what_to_install_for_them(page):
    title, _, first, *_ = (DOCS / page).read_text().splitlines()
    assert title.startswith("# ")
    assert re.fullmatch(rf"The examples start in a checkout, after `{INSTALL.pattern}'?(?: torchdata)?`\.", first)


def test_no_block_escapes_the_tests():
    """Blocks that are not run here are pictures, what installs us, and calls of libraries that are not installed.
    tests/mount/test_mount_steps.py runs the C and Perl; test_mounting_page.py checks the lines for fstab and autofs.
    """
    unpasted = [(name, *each) for name, page in NAMED.items() for each in blocks_of(page) if each not in RUN[name]]
    for name, kind, block in unpasted:
        if kind == "json":
            assert json.loads(block).keys() == {"key", "wav", "txt", "info"}
        elif kind == "":
            assert "├──" in block or "import" in block or name == "orders.md", block
        else:
            others = {
                "README.md": ("sh",),
                "control-files.md": ("c", "perl"),
                "fleets.md": ("sh", "sql"),
                "mounting.md": ("fstab", "automount", "dockerfile"),
                "operating.md": ("logrotate",),
            }
            assert kind in others[name], block
