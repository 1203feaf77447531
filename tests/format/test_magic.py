import gzip
import io
import zipfile

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from touchfs.format.magic import MAGIC_SIZE, extension


def written(kind: str) -> bytes:
    """What the real writer of a format writes."""
    made = io.BytesIO()
    if kind == "npy":
        np.save(made, np.zeros(3))
    elif kind == "zip":
        with zipfile.ZipFile(made, "w") as archive:
            archive.writestr("x", b"x")
    elif kind == "gz":
        made.write(gzip.compress(b"x"))
    elif kind == "opus":
        soundfile.write(made, np.zeros(4800), 48000, format="OGG", subtype="OPUS")
    else:
        soundfile.write(made, np.zeros(4800), 48000, format=kind.upper())
    return made.getvalue()


@pytest.mark.parametrize("kind", ["wav", "flac", "ogg", "opus", "mp3", "aiff", "au", "caf", "npy", "zip", "gz"])
def test_real_files(kind: str) -> None:
    assert extension(written(kind)) == kind
    assert extension(memoryview(written(kind))[:MAGIC_SIZE]) == kind


def test_rf64() -> None:
    made = io.BytesIO()
    soundfile.write(made, np.zeros(10), 48000, format="RF64")
    assert extension(made.getvalue()) == "wav"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\0\0\0\x18ftypmp42", "mp4"),
        (b"\0\0\0\x18ftypisom", "mp4"),
        (b"\0\0\0\x14ftypqt  ", "mov"),
        (b"\0\0\0\x1cftypM4A ", "m4a"),
        (b"\x1aE\xdf\xa3\x9fB\x86", "mkv"),
        (b"RIFF\x10\0\0\0AVI LIST", "avi"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "webp"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "jpg"),
        (b"RIFF\x10\0\0\0what", "bin"),
        (b"FORM\0\0\0\x10AIFCFVER", "aiff"),
        (b"FORM\0\0\0\x10ILBMBMHD", "bin"),
        (b"OggS", "ogg"),
        (b"\xff\xf1\x50\x80", "aac"),
        (b"#!AMR\n", "amr"),
        (b"NIST_1A\n   1024\n", "sph"),
        (b"RIFF", "bin"),
        (b"ftyp", "bin"),
        (b"", "bin"),
    ],
)
def test_heads(head: bytes, kind: str) -> None:
    assert extension(head) == kind


@given(st.binary(max_size=40))
def test_any_bytes_have_an_extension(data: bytes) -> None:
    found = extension(data)
    assert found.isalnum() and found.islower()
    assert extension(data[:MAGIC_SIZE]) == found
