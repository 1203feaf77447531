"""Completion in a real bash: the script is sourced, and asked as bash asks it."""

import os
import subprocess

import pytest
from command import TOUCHFS

ASK = """
    source <(touchfs setup completion bash)
    complete -p touchfs
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _touchfs_completion touchfs 2> /dev/null
    printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words):
    environment = os.environ | {"PATH": f"{TOUCHFS.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", ASK, "bash", *words], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    function, *found = done.stdout.splitlines()
    assert function == "complete -o nosort -F _touchfs_completion touchfs"
    return found


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["touchfs", "mou"], ["mount"]),
        (["touchfs", "pack", "par"], ["parquet"]),
        (["touchfs", "mount", "--noex"], ["--noexec"]),
        (["touchfs", "mount", "--log-level", "w"], ["warning"]),
        (["touchfs", "mount", "a", "b", "-o", "ro,fm"], ["ro,fmask="]),
        (["touchfs", "mount", "a", "b", "-o", "ro,stuck"], []),
        (["touchfs", "mount", "-o", "nonsense,", "--noex"], ["--noexec"]),
        (["touchfs", "mount", "shards"], []),
    ],
)
def test_bash_completes(words, found):
    """Commands, options, values and words of `-o`; for a path bash completes by itself."""
    assert [each for each in completed(*words) if each] == found


@pytest.mark.parametrize(("shell", "line"), [("zsh", "#compdef touchfs"), ("fish", "function _touchfs_completion;")])
def test_scripts_of_other_shells(text, shell, line):
    assert text("setup", "completion", shell).startswith(line)
