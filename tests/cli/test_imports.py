"""What is imported is what is needed: commands start at once, and all but mount run without libfuse."""

import json
import subprocess
import sys

import pytest
from interleaved_tars import make_wds_tar
from tars import write_tar

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

# Before it: bash asks for the commands that begin with m.
COMPLETE = "import os; os.environ.update(_TOUCHFS_COMPLETE='bash_complete', COMP_WORDS='touchfs m', COMP_CWORD='1')\n"


def modules(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.decode().splitlines()[-1].split())


def ours(imported):
    return sorted(name for name in imported if name.partition(".")[0] == "touchfs")


def test_importing_touchfs_costs_nothing():
    assert not modules("import sys, touchfs; print(*sys.modules, file=sys.stderr)") & {
        "click",
        "numpy",
        "pyfuse3",
        "rich",
        "trio",
    }


# All in one process: what one command imports, it has imported in the next ones, too.
RUN_ALL = """
import json, sys
from touchfs.cli.main import main
for name, arguments in json.loads(sys.argv[1]).items():
    sys.argv[:] = ["touchfs", name, *arguments]
    try:
        main()
    except SystemExit as end:
        assert end.code == 0, name
    unwanted = {"pyfuse3", "trio", "pyarrow", "rich"}.intersection(sys.modules)
    assert not unwanted, f"{name} imports {unwanted}"
"""


def test_no_command_but_mount_needs_fuse(shards, tmp_path):
    file = f"{shards}:shards/000000000/numbers.wav"
    arguments = {
        "cat": [file],
        "convert": [str(shards), str(tmp_path / "tars"), "--to", "tar", "--jobs", "1"],
        "cp": [file, str(tmp_path / "copy")],
        "demo": ["--help"],
        "doctor": ["--help"],
        "image": [str(make_wds_tar(tmp_path / "t.tar", [("a.txt", b"a")])), "-o", str(tmp_path / "x.erofs")],
        "index": ["--force", "--jobs", "1", str(shards)],
        "info": [str(shards)],
        "iterate": [str(shards)],
        "iterator": ["list", str(shards)],
        "ls": [str(shards)],
        "manifest": [str(shards), "--kind", "filelist"],
        "meta": ["get", str(shards)],
        "pack": ["touchnet", "--help"],
        "prefetch": [str(shards)],
        "reload": ["--help"],
        "serve": ["--help"],
        "show": [file],
        "setup": ["man", str(tmp_path / "man")],
        "stat": [file],
        "status": ["--help"],
        "storage": ["ls"],
        "umount": ["--help"],
        "verify": [str(shards), "--jobs", "1"],
    }
    assert arguments.keys() == COMMANDS.keys() - {"mount", "interleave"}
    done = subprocess.run([sys.executable, "-c", RUN_ALL, json.dumps(arguments)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_interleaving_needs_no_fuse(tmp_path):
    tar = make_wds_tar(tmp_path / "t.tar", [])
    imported = modules(RUN, "interleave", str(tar), str(tmp_path / "items"), "--jobs", "1")
    assert "touchfs.cli.interleave" in imported
    assert not imported & {"pyfuse3", "trio", "rich"}


@pytest.mark.parametrize("before", ["", COMPLETE], ids=["help", "completion"])
def test_the_names_of_commands_are_told_without_importing_one(before):
    imported = modules(before + RUN, "--help")
    assert not imported & {"numpy", "dataclasses", "importlib.metadata"}
    assert not imported & {f"touchfs.cli.{name}" for name in COMMANDS}
    assert len(ours(imported)) <= 18, ours(imported)


def test_what_is_indexed_is_listed_without_the_means_to_index_in_parallel(shards):
    assert not modules(RUN, "ls", str(shards)) & {"multiprocessing", "sqlite3"}


def test_an_indexed_tar_is_listed_without_what_reads_shards(text, tmp_path):
    """The number of our modules is what `ls` mostly waits for: 310 of them take as long as Python, click and NumPy."""
    tar = tmp_path / "texts.tar"
    write_tar(tar, {"a.txt": b"text", "b.txt": b"text"})
    assert text("ls", tar).split() == ["by-key/", "manifests/", "shards/"]
    imported = modules(RUN, "ls", str(tar))
    assert not imported & {
        *("multiprocessing", "sqlite3", "subprocess", "socket", "asyncio", "xml", "html", "tarfile", "email"),
        *("pyarrow", "lance", "fsspec", "PIL", "soundfile", "rich", "importlib.metadata"),
        *(
            "touchfs.containers.tar.reader",
            "touchfs.containers.lines.reader",
            "touchfs.containers.lines.kaldi",
            "touchfs.containers.touchnet.megatron",
        ),
        *("touchfs.tree.slices", "touchfs.tree.table_views", "touchfs.tree.videos.frames", "touchfs.tree.interleaved"),
        *("touchfs.lists.stored", "touchfs.catalog.key_builder", "touchfs.indexing.tables.sample_tables"),
        *("touchfs.segments.formats.srt", "touchfs.format.cache_metadata.layouts", "touchfs.tree.checked_view"),
    }
    assert len(ours(imported)) <= 232, ours(imported)


def test_a_mount_imports_only_what_it_needs_before_the_root_answers(shards, tmp_path, text):
    """Each of these would delay it. Nodes come with the first iterator."""
    point = str(tmp_path / "mnt")
    command = [sys.executable, "-X", "importtime", "-c", "from touchfs.cli.main import main; main()"]
    mounted = subprocess.run([*command, "mount", str(shards), point], capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in mounted.stderr.splitlines()}
    text("umount", point)
    assert "touchfs_mount.mounting.mounting" in imported
    assert not imported & {
        *("pyarrow", "lance", "PIL", "soundfile", "fsspec", "asyncio", "rich", "tarfile"),
        *("touchfs.node.audio.cut_mixer", "touchfs.node.batch.sampler", "touchfs.node.leaf.interleaved"),
        *("touchfs.indexing.interleaved.catalog", "touchfs.tables.parquet.parquet_cell", "touchfs.tables.arrow.packed"),
    }
