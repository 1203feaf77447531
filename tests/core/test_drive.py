import io

import numpy as np
import pytest
import soundfile
from conformance import MemorySource

from touchfs.core.errors import FormatError, SourceError
from touchfs.core.extent import Reads, drive
from touchfs.format import wav


def test_a_codecs_plan_is_carried_out() -> None:
    made = io.BytesIO()
    soundfile.write(made, np.zeros((100, 2)), 8000, format="WAV", subtype="PCM_16")
    data = made.getvalue()
    found = drive(wav.scan(len(data)), MemorySource(data))
    assert (found.rate, found.channels, found.bits, found.data_size) == (8000, 2, 16, 400)


def test_a_plan_may_want_nothing() -> None:
    def plan() -> Reads[str]:
        return "at once"
        yield 0, 0

    assert drive(plan(), MemorySource(b"")) == "at once"


def test_errors_of_the_plan_and_of_the_source_pass_through() -> None:
    with pytest.raises(FormatError, match="not a WAV file"):
        drive(wav.scan(100), MemorySource(bytes(100)))
    with pytest.raises(SourceError, match="the bytes end here"):
        drive(wav.scan(100), MemorySource(bytes(99)))
