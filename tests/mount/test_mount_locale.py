"""Names and JSON are UTF-8 in every locale, and bytes that are none are shown as ever."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from command import TOUCHFS
from mounts import touchfs
from tars import write_tar
from variants import with_variants

NAME = os.fsdecode("grüße\xff".encode("latin-1"))
QUOTED = b"gr%FC%DFe%FF"
MEMBERS = {"grüße.json": '{"a": "ü"}'.encode(), "grüße.txt": b"x", f"{NAME}.txt": b"y"}
PLAIN = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LOCALES = {
    "C": {"LC_ALL": "C", **PLAIN},
    "ISO-8859-1": {"LC_ALL": "en_US.ISO-8859-1", **PLAIN},
    "EUC-JP": {"LC_ALL": "ja_JP.EUC-JP", **PLAIN},
    "not there": {"LC_ALL": "xx_XX.none", **PLAIN},
}


@pytest.fixture(scope="module")
def locales(tmp_path_factory) -> Path:
    """Locales of these codings. All else in them is that of POSIX, as any other language takes seconds to compile."""
    place = tmp_path_factory.mktemp("locales")
    for name in ("en_US.ISO-8859-1", "ja_JP.EUC-JP"):
        command = ["localedef", "-i", "POSIX", "-f", name.partition(".")[2], place / name]
        subprocess.run(command, check=False, capture_output=True)
        assert (place / name).is_dir()
    return place


@pytest.mark.parametrize("locale", with_variants(LOCALES, lambda locale: locale in ("C", "ISO-8859-1")))
def test_a_mount_and_commands(locale, locales, mount, tmp_path, monkeypatch):
    for name, value in {"LOCPATH": str(locales), **LOCALES[locale]}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LANG", raising=False)
    (tmp_path / "shards").mkdir()
    write_tar(tmp_path / "shards/a.tar", MEMBERS)
    mounted = mount(tmp_path / "shards")
    here = os.fsencode(mounted.path)
    assert sorted(os.listdir(here + b"/shards/a")) == sorted([*map(str.encode, [*MEMBERS][:2]), QUOTED + b".txt"])
    assert json.loads((mounted.path / ".touchfs/info").read_bytes())["samples"] == 2
    iterator = mounted.path / ".touchfs/iterators/train"
    iterator.mkdir()
    (iterator / "spec").write_text('{"output": "key", "batch": 2}')
    assert "grüße".encode() in (iterator / "next").read_bytes().splitlines()
    (iterator / "spec").write_text('{"output": "json", "batch": 1}')
    (iterator / "reset").write_text("1")
    assert "grüße" in {json.loads((iterator / "next").read_bytes())["key"] for _ in range(2)}
    assert touchfs("status", "--stats", mounted.path).returncode == 0
    file = f"{tmp_path / 'shards'}:shards/a/grüße.json"
    for command in (["stat", file], ["info", str(tmp_path / "shards")]):
        done = subprocess.run([TOUCHFS, *command], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), (command, done)
        assert command[0] == "info" or "grüße".encode() in done.stdout
