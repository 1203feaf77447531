"""Manual pages: one for each command, complete, and without a fault that groff warns of."""

import re
import subprocess

import click
import pytest
from test_help import commands

from touchfs.cli.main import SECTIONS
from touchfs.cli.mount_helper import command as mount_helper


@pytest.fixture(scope="module")
def pages(touchfs, tmp_path_factory):
    place = tmp_path_factory.mktemp("man")
    done = touchfs("setup", "man", place)
    assert (done.returncode, done.stderr) == (0, b"")
    return place


def rendered(path):
    """A page as groff prints it, without line breaks."""
    command = ["groff", "-Kutf8", "-Tutf8", "-ww", "-P-cbou", "-man", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return " ".join(re.sub("‐\n *", "", done.stdout).split())


def test_every_command_has_a_page_with_all_of_its_options(pages):
    known = {"-".join(("touchfs", *names)): command for names, command in commands()}
    assert {path.name for path in pages.glob("man1/*")} == {f"{name}.1" for name in known}
    for name, command in known.items():
        text = rendered(pages / "man1" / f"{name}.1")
        assert text.startswith(f"{name.upper()}(1) User Commands")
        summary = command.get_short_help_str(1000).rstrip(".")
        assert f"NAME {name} - {summary} SYNOPSIS {name.replace('-', ' ')}"[:60] in text
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.opts[-1] in text, name


def test_the_first_page_lists_the_commands_as_the_help_does(pages):
    text = rendered(pages / "man1" / "touchfs.1")
    expected = " ".join(f"{title} {' '.join(map(' '.join, names.items()))}" for title, names in SECTIONS.items())
    assert f"COMMANDS {expected} SEE ALSO" in text


def test_the_page_of_mount_has_exit_statuses_and_defaults(pages):
    text = rendered(pages / "man1" / "touchfs-mount.1")
    assert "EXIT STATUS 0 mounted (with -f: unmounted) 13 dataset is damaged" in text
    assert "EXAMPLE touchfs mount shards/ /mnt/speech touchfs umount" in text
    assert "--workers INTEGER RANGE Number of processes that serve requests. [default: 1; 1<=x<=64]" in text


def test_the_helper_of_mount_has_a_page_for_administrators(pages):
    text = rendered(pages / "man8" / "mount.touchfs.8")
    assert text.startswith("MOUNT.TOUCHFS(8) System Administration")
    assert all(option.opts[-1] in text for option in mount_helper.params if isinstance(option, click.Option))
    assert "SYNOPSIS mount.touchfs [OPTIONS] DATASET MOUNTPOINT" in text


def test_lines_that_begin_as_requests_are_text():
    from touchfs.cli.manual_pages import _escaped

    for line in (".touchfs/errors", "'quoted'", "a\\b-c"):
        page = f".TH X 1\n.SH Y\n{_escaped(line)}\n"
        command = ["groff", "-Kutf8", "-Tutf8", "-ww", "-P-cbou", "-man"]
        done = subprocess.run(command, input=page, capture_output=True, text=True, check=True)
        assert (line in done.stdout, done.stderr) == (True, "")
