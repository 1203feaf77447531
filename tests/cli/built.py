"""The distribution of the checkout, built as for a package index."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent.parent
CHANGES, LICENSE = "CHANGELOG.md", "LICENSE"
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
DOCS = [path.name for path in sorted((CHECKOUT / "docs").glob("*.md"))]


def build(place):
    """What the sdist holds, and the wheel that is built from it, both in a directory."""
    source = place / "checkout"
    source.mkdir()
    for name in ("touchfs", "mount", "systemd", "docs"):
        shutil.copytree(CHECKOUT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", *PAGES, CHANGES, LICENSE):
        shutil.copy(CHECKOUT / name, source)
    (sdist,) = _build(source, place, "sdist", "*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(place, filter="data")
        names = [name.partition("/")[2] for name in archive.getnames()]
    (wheel,) = _build(place / sdist.name.removesuffix(".tar.gz"), place, "wheel", "*.whl")
    return names, wheel


def _build(source, place, kind, pattern):
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(place)!r})"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=source, check=True, stdout=subprocess.DEVNULL)
    return list(place.glob(pattern))
