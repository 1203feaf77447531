"""What is imported is what is needed: commands start at once, and all but mount run without libfuse."""

import subprocess
import sys

import pytest
from interleaved_tars import make_wds_tar

from touchfs.cli.main import COMMANDS

RUN = """
import sys
from touchfs.cli.main import main
sys.argv[0] = "touchfs"
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def modules(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.decode().splitlines()[-1].split())


def test_importing_touchfs_costs_nothing():
    assert not modules("import sys, touchfs; print(*sys.modules, file=sys.stderr)") & {
        "click",
        "numpy",
        "pyfuse3",
        "rich",
        "trio",
    }


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "mount"])
def test_no_command_but_mount_needs_fuse(shards, tmp_path, name):
    file = f"{shards}:shards/000000000/numbers.wav"
    arguments = {
        "cat": [file],
        "checksum": [str(shards)],
        "completion": ["bash"],
        "convert": [str(shards), str(tmp_path / "tars"), "--to", "tar"],
        "cp": [file, str(tmp_path / "copy")],
        "doctor": ["--help"],
        "index": ["--force", str(shards)],
        "info": [str(shards)],
        "install-helper": ["--help"],
        "interleave": [str(make_wds_tar(tmp_path / "t.tar", [])), str(tmp_path / "items")],
        "iterate": [str(shards)],
        "iterator": ["list", str(shards)],
        "ls": [str(shards)],
        "man": [str(tmp_path / "man")],
        "manifest": [str(shards), "--kind", "filelist"],
        "meta": ["get", str(shards)],
        "pack": ["touch", "--help"],
        "prefetch": [str(shards)],
        "reload": ["--help"],
        "serve": ["--help"],
        "stat": [file],
        "stats": ["--help"],
        "status": ["--help"],
        "storage": ["ls"],
        "umount": ["--help"],
        "verify": [str(shards)],
    }[name]
    imported = modules(RUN, name, *arguments)
    assert "touchfs.cli.main" in imported
    needed = {"pyarrow"} if name == "interleave" else set()
    assert not imported & ({"pyfuse3", "trio", "pyarrow", "rich"} - needed)


def test_what_is_indexed_is_listed_without_the_means_to_index_in_parallel(shards):
    assert not modules(RUN, "ls", str(shards)) & {"multiprocessing", "sqlite3"}


def test_a_mount_imports_only_what_it_needs_before_the_root_answers(shards, tmp_path):
    """Each of these would delay it. Nodes come with the first iterator."""
    point = str(tmp_path / "mnt")
    command = [sys.executable, "-X", "importtime", "-c", "from touchfs.cli.main import main; main()"]
    mounted = subprocess.run([*command, "mount", str(shards), point], capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in mounted.stderr.splitlines()}
    modules(RUN, "umount", point)
    assert "touchfs_mount.mounting.mounting" in imported
    assert not imported & {
        *("pyarrow", "lance", "PIL", "soundfile", "fsspec", "asyncio", "rich", "tarfile"),
        *("touchfs.node.audio.cut_mixer", "touchfs.node.batch.sampler", "touchfs.node.leaf.interleaved"),
        *("touchfs.indexing.interleaved.catalog", "touchfs.form.tables.parquet_cell", "touchfs.form.tables.packed"),
    }
