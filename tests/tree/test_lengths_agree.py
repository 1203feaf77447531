"""How many samples a recording has, and where they begin: the same in a mount, the library, an index and a Shar.

A full decode by libav is the oracle, or what was encoded.
"""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import soundfile
from recordings import decode_all, make, to_16_bits
from tars import write_tar

import touchfs
from touchfs.bulk.convert.audio import to_pcm
from touchfs.containers.shar.write.audio import scan
from touchfs.core.errors import FormatError
from touchfs.dataset.recordings.recording import decode
from touchfs.indexing import open_dataset
from touchfs.tree.tree import Tree

RATE = 16000
LENGTH = 9 * RATE


class Kind(NamedTuple):
    """The bytes of a recording, and its samples as floats or 16-bit integers, of shape (frames, channels)."""

    data: bytes
    samples: np.ndarray


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kind]:
    """By file name: recordings whose length their first bytes do not say, or say wrongly."""
    directory = tmp_path_factory.mktemp("lengths")

    def made(name: str, *options: str) -> bytes:
        return make(directory, name, RATE, 1, *options).read_bytes()

    pcm = made("a.wav", "-c:a", "pcm_s16le")[-2 * LENGTH :]
    truth = np.frombuffer(pcm, "<i2")[:, None]
    vbr, vorbis = made("vbr.mp3", "-q:a", "5", "-write_xing", "0"), made("a.ogg", "-c:a", "libvorbis")
    flac = bytearray(made("a.flac", "-sample_fmt", "s16"))
    flac[21] &= 0xF0
    flac[22:26] = bytes(4)
    alone = decode_all(io.BytesIO(vorbis))
    found = {
        "vbr.mp3": Kind(vbr, decode_all(io.BytesIO(vbr))),
        "zeros.mp3": Kind(bytes(30_000) + vbr, decode_all(io.BytesIO(vbr))),
        "radio.mp3": Kind(b"ICY 200 OK\r\n" * 99 + vbr, decode_all(io.BytesIO(vbr))),
        "tail.mp3": Kind(tail := vbr[len(vbr) // 3 :], decode_all(io.BytesIO(tail))),
        "chain.ogg": Kind(vorbis * 2, np.concatenate([alone, alone])),
        "no-count.flac": Kind(bytes(flac), truth),
        "placeholder.wav": Kind(wav_of(pcm, 2**31 - 1), truth),
        "cut-short.wav": Kind(wav_of(pcm, len(pcm) + 1000), truth),
        "faac.aac": Kind(faac := from_faac(made("b.aac", "-aac_pns", "0")), decode_all(io.BytesIO(faac))),
        "rifx.wav": Kind(rifx(truth), truth),
        "id3.wav": Kind(b"ID3\3\0\0\0\0\0\x0a" + bytes(10) + wav_of(pcm, len(pcm)), truth),
    }
    for name, form, subtype in (
        ("a.au", "AU", None), ("a.caf", "CAF", None), ("a.sph", "NIST", None), ("a.w64", "W64", None),
        ("gsm.wav", "WAV", "GSM610"),
    ):  # fmt: skip
        file = io.BytesIO()
        soundfile.write(file, truth, RATE, subtype, format=form)
        data = file.getvalue()
        found[name] = Kind(data, truth if subtype is None else decode_all(io.BytesIO(data)))
    caf = found["a.caf"].data
    at = caf.index(b"data") + 4
    found["stream.caf"] = Kind(caf[:at] + b"\xff" * 8 + caf[at + 8 :], truth)
    for name, *options in (
        ("a.mka", "-c:a", "libvorbis"), ("a.ts", "-c:a", "mp2"), ("a.mpg", "-ar", "44100"), ("a.wma",),
        ("a.ac3", "-ar", "48000"), ("ac3.mka", "-c:a", "ac3", "-ar", "48000"),
    ):  # fmt: skip
        data = made(name, *options)
        found[name] = Kind(data, decode_all(io.BytesIO(data)))
    return found


def wav_of(pcm: bytes, stated: int) -> bytes:
    fmt = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    return b"".join(
        (struct.pack("<4sI4s", b"RIFF", stated + 36, b"WAVE"), fmt, struct.pack("<4sI", b"data", stated), pcm)
    )


def rifx(samples: np.ndarray) -> bytes:
    fmt = struct.pack(">4sIHHIIHH", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    pcm = samples.astype(">i2").tobytes()
    head = struct.pack(">4sI4s", b"RIFX", len(pcm) + 36, b"WAVE")
    return b"".join((head, fmt, struct.pack(">4sI", b"data", len(pcm)), pcm))


def from_faac(adts: bytes) -> bytes:
    """ADTS whose first packet has the mark of FAAC, by which decoders drop what the packet decodes to."""
    size = (adts[3] & 3) << 11 | adts[4] << 3 | adts[5] >> 5
    mark = f"{0:017b}" + "".join(f"{byte:08b}" for byte in b"libfaac 1.28")
    filling = f"1101111{16 - 14:08b}" + mark.ljust(8 * 16, "0")
    bits = filling + "".join(f"{byte:08b}" for byte in adts[7:size])
    packet = int(bits.ljust(-(-len(bits) // 8) * 8, "0"), 2).to_bytes(-(-len(bits) // 8), "big")
    size = 7 + len(packet)
    head = bytes((*adts[:3], adts[3] & 0xFC | size >> 11, size >> 3 & 0xFF, (size & 7) << 5 | adts[5] & 0x1F, adts[6]))
    return head + packet + adts


@pytest.fixture(scope="module")
def path(kinds: dict[str, Kind], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tar of all kinds, each with a segment."""
    segment = json.dumps({"segments": [{"start": 1, "end": 1.5}]}).encode()
    members = {name.replace(".", "-") + "." + name.split(".")[1]: kind.data for name, kind in kinds.items()}
    notes = {name.rpartition(".")[0] + ".json": segment for name in members}
    return write_tar(tmp_path_factory.mktemp("tar") / "x.tar", dict(sorted((members | notes).items())))


def test_everyone_finds_the_same(kinds: dict[str, Kind], path: Path) -> None:
    dataset = open_dataset(str(path), in_memory=True)
    tree = Tree(dataset, range(1, 2))
    for name, (data, samples) in kinds.items():
        key = name.replace(".", "-")
        floats, rate = decode(data)
        assert len(floats) == len(samples), name
        for view, first, end in (("slices/all", 0, None), ("slices/2-3.5", 2, 3.5), ("segments", 1, 1.5)):
            shown = f"{view}/x/{key}/0000.wav" if view == "segments" else f"{view}/x/{key}.wav"
            content = tree.content(tree.resolve(shown).inode)
            found, _ = soundfile.read(io.BytesIO(content.read(0, content.size)), dtype="int16", always_2d=True)
            expected = to_16_bits(samples)[int(first * rate) : None if end is None else int(end * rate)]
            assert found.shape == expected.shape, (name, view)
            assert np.abs(found.astype(int) - expected).max() <= 1, (name, view)


def test_an_index_and_a_shar_have_these_lengths(
    kinds: dict[str, Kind], path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_dataset(str(path), full=True)
    samples = {sample.key: sample for sample in touchfs.open(str(path))}
    assert {sample.key for sample in touchfs.open(str(path)).where("duration < 8")} == {"tail-mp3"}
    for name, (data, whole) in kinds.items():
        sample = samples[name.replace(".", "-")]
        audio, rate = sample.audio()
        assert sample.duration == len(audio) / rate == len(whole) / rate, name
        shape = scan(data)
        assert (shape.sampling_rate, shape.num_samples) == (rate, len(whole)), name


def test_flac_without_a_count_becomes_pcm(kinds: dict[str, Kind]) -> None:
    data, samples = kinds["no-count.flac"]
    assert bytes(to_pcm(data, RATE)[0]) == samples.tobytes()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a recording"),
        (b"RIFF", "not a recording"),
        (b"none" * 99, "not a recording"),
        (b"\xff\xfb" + bytes(99), "."),
        (b"ID3\4\0\0\0\0\0\x0a" + bytes(10), "it has no sound: it ends after its tags"),
        (b"fLaC" + bytes(99), "FLAC stream of 1 bits"),
        (b"OggS" + bytes(99), "Ogg"),
    ],
)
def test_what_is_no_sound_is_one_line_of_error(data: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason) as caught:
        decode(data)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("its recording cannot be decoded: ")
