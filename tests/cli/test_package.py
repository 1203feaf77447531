"""The distribution has what an administrator needs, and says what it is."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from command import INSTALLED

import touchfs

CHECKOUT = Path(__file__).parent.parent.parent
UNIT, CHANGES, LICENSE = "touchfs@.service", "CHANGELOG.md", "LICENSE"
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
DOCS = [path.name for path in sorted((CHECKOUT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is built from it."""
    place = tmp_path_factory.mktemp("build")
    source = place / "checkout"
    source.mkdir()
    for name in ("touchfs", "mount", "systemd", "docs"):
        shutil.copytree(CHECKOUT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", *PAGES, CHANGES, LICENSE):
        shutil.copy(CHECKOUT / name, source)
    (sdist,) = build(source, place, "sdist", "*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(place, filter="data")
    (wheel,) = build(place / sdist.name.removesuffix(".tar.gz"), place, "wheel", "*.whl")
    return sdist, wheel


def build(source, place, kind, pattern):
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(place)!r})"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=source, check=True, stdout=subprocess.DEVNULL)
    return list(place.glob(pattern))


@pytest.mark.parametrize("name", [UNIT, CHANGES, LICENSE])
def test_sdist_and_wheel_hold_the_unit_the_changelog_and_the_license(built, name):
    sdist, wheel = built
    with tarfile.open(sdist) as archive:
        assert any(Path(member).name == name for member in archive.getnames())
    with zipfile.ZipFile(wheel) as archive:
        assert any(Path(member).name == name for member in archive.namelist())


def test_links_of_the_readme_lead_somewhere_in_sdist_and_wheel(built):
    sdist, wheel = built
    links = {*PAGES, CHANGES, *(f"docs/{name}" for name in DOCS)}
    with tarfile.open(sdist) as archive:
        assert links <= {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        assert links <= {name.partition("/share/doc/touchfs/")[2] for name in archive.namelist()}


def test_the_wheel_holds_both_packages_and_says_what_it_is(built):
    with zipfile.ZipFile(built[1]) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("/METADATA"))
    assert {"touchfs/py.typed", "touchfs_mount/py.typed", "touchfs/cli/mount.py"} <= set(names)
    fields = Parser().parsestr(metadata)
    assert fields["License-Expression"] == "Apache-2.0"
    assert "filesystem" in fields["Keywords"]
    assert "Topic :: System :: Filesystems" in fields.get_all("Classifier")


def test_the_package_lists_its_public_names_and_its_version():
    assert {"SampleSet", "TouchDataset", "__version__"} <= set(dir(touchfs))
    assert f"touchfs, version {touchfs.__version__}\n" == subprocess.check_output([INSTALLED, "--version"], text=True)


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
    done = subprocess.run([INSTALLED], env=os.environ | environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("file,\n", "")


def test_completion_completes_commands():
    environment = {"_TOUCHFS_COMPLETE": "bash_complete", "COMP_WORDS": "touchfs mou", "COMP_CWORD": "1"}
    done = subprocess.run([INSTALLED], env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.stdout == "plain,mount\n"
