"""The spoken sentences of tests/data, and the command that is tested with them."""

import json
import sys
from pathlib import Path

COMMAND = Path(sys.executable).parent / "touchfs"
SPEECH = Path(__file__).parent.parent / "data" / "speech"
SENTENCES = [json.loads(line) for line in (SPEECH / "speech.jsonl").read_text(encoding="utf-8").splitlines()]
