"""The spoken sentences of tests/data, and the command that is tested with them."""

import json
from pathlib import Path

SPEECH = Path(__file__).parent.parent / "data" / "speech"
SENTENCES = [json.loads(line) for line in (SPEECH / "speech.jsonl").read_text(encoding="utf-8").splitlines()]
