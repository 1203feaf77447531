"""What the README shows is what happens: its console sessions and Python examples are run, in order, and compared."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def test_every_example_of_the_readme(tmp_path):
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    assert {kind for kind, _ in BLOCKS} == {"console", "python"}
    try:
        for kind, block in BLOCKS:
            if kind == "python":
                subprocess.run([sys.executable, "-c", block], cwd=tmp_path, env=environment, check=True)
                continue
            for session in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, shown = session.partition("\n")
                done = subprocess.run(
                    ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, f"$ {command}\n{done.stderr}"
                wanted = re.escape(shown).replace("…", ".*")
                assert re.fullmatch(wanted, done.stdout, re.DOTALL), f"$ {command}\n{done.stdout}"
    finally:
        if os.path.ismount(tmp_path / "mnt"):
            subprocess.run(["fusermount3", "-u", "-z", tmp_path / "mnt"], check=True)
