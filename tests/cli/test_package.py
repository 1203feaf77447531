"""The distribution has what an administrator needs, and says what it is."""

import os
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from built import CHANGES, CHECKOUT, DOCS, LICENSE, PAGES, build
from command import INSTALLED, TOUCHFS

import touchfs
from touchfs.core.extras import DISTRIBUTION

UNIT = "touchfs@.service"


def test_sdist_and_wheel_hold_what_they_should_and_say_what_they_are(tmp_path):
    sdist, wheel = build(tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("/METADATA"))
    for members in (sdist, names):
        assert {UNIT, CHANGES, LICENSE} <= {Path(member).name for member in members}
    links = {*PAGES, CHANGES, *(f"docs/{name}" for name in DOCS)}  # of the README
    assert links <= set(sdist)
    assert links <= {name.partition("/share/doc/touchfs/")[2] for name in names}
    assert {"touchfs/py.typed", "touchfs_mount/py.typed", "touchfs/cli/mount.py"} <= set(names)
    fields = Parser().parsestr(metadata)
    assert fields["License-Expression"] == "Apache-2.0"
    assert "filesystem" in fields["Keywords"]
    assert "Topic :: System :: Filesystems" in fields.get_all("Classifier")
    assert fields["Name"] == DISTRIBUTION
    assert {url.partition(",")[0] for url in fields.get_all("Project-URL")} >= {"Documentation", "Issues", "Source"}


def test_the_extra_all_has_the_others_but_what_is_large_or_needs_a_server():
    with open(CHECKOUT / "pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    (whole,) = extras["all"]
    name, _, parts = whole.removesuffix("]").partition("[")
    assert name == DISTRIBUTION
    assert set(parts.split(",")) == extras.keys() - {"all", "torch", "dask", "postgres", "dev", "interop", "bench"}


def test_the_package_lists_its_public_names_and_its_version():
    assert {"SampleSet", "TouchDataset", "__version__"} <= set(dir(touchfs))
    assert f"touchfs, version {touchfs.__version__}\n" == subprocess.check_output([INSTALLED, "--version"], text=True)


def test_the_project_with_our_name_beside_us_is_told(tmp_path):
    """By the first import, and by `touchfs doctor`, with the cure."""
    packages = tmp_path / "site-packages"
    (packages / "touchfs-1.0.dist-info").mkdir(parents=True)
    environment = os.environ | {"PYTHONPATH": str(packages)}
    advice = "`pip uninstall -y touchfs touchfs-shards && pip install touchfs-shards`"
    done = subprocess.run([sys.executable, "-c", "import touchfs"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"{packages}/touchfs-1.0.dist-info" in done.stderr and advice in done.stderr
    done = subprocess.run([INSTALLED, "doctor"], env=environment, capture_output=True, text=True)
    assert [line for line in done.stdout.splitlines() if advice.strip("`") in line and line.startswith("bad")]


@pytest.mark.parametrize(
    "words",
    [
        "cat ",
        "convert in ",
        "cp a ",
        "index ",
        "info ",
        "iterate ",
        "iterator next ",
        "ls ",
        "meta get ",
        "mount ",
        "mount in ",
        "mount --state-dir ",
        "pack tar ",
        "reload ",
        "stat ",
        "status ",
        "umount ",
        "umount a ",
    ],
)
def test_completion_completes_paths(words):
    line = f"touchfs {words}"
    environment = {"_TOUCHFS_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()))}
    done = subprocess.run([TOUCHFS], env=os.environ | environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("file,\n", "")


def test_completion_completes_commands():
    environment = {"_TOUCHFS_COMPLETE": "bash_complete", "COMP_WORDS": "touchfs mou", "COMP_CWORD": "1"}
    done = subprocess.run([TOUCHFS], env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.stdout == "plain,mount\n"
