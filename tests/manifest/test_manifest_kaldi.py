import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.errors import FormatError
from touchfs.manifest.entry import ListedRecording, Utterance, recording_id, utterance_ids
from touchfs.manifest.kaldi import (
    build_reco2dur,
    build_segments,
    build_text,
    build_utt2dur,
    build_utt2spk,
    build_wav_scp,
    parse_recording,
    parse_segments,
)

MONDAY = ListedRecording("monday", "/data/talks/monday.wav", 16000, 1, 152000)
UTTERANCE = Utterance("Ann-monday-0000", MONDAY, 24000, 16016, "Ann", " Good\nmorning. ", "Ann", "en")
WORDS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \n\u3000<s>/#0"), max_size=12)


def test_what_kaldi_expects() -> None:
    assert build_wav_scp(MONDAY) == "monday /data/talks/monday.wav\n"
    assert build_segments(UTTERANCE) == "Ann-monday-0000 monday 1.5 2.501\n"
    assert build_text(UTTERANCE) == "Ann-monday-0000 Good morning.\n"
    assert build_text(UTTERANCE._replace(text=None)) == "Ann-monday-0000\n"
    assert build_text(UTTERANCE._replace(text="<s> a #0<s> b</s> #00")) == "Ann-monday-0000 a b</s> #00\n"
    assert build_utt2spk(UTTERANCE) == "Ann-monday-0000 Ann\n"
    # 1.001 * 16000 is less than 16016 in floats, and Kaldi truncates.
    assert build_utt2dur(UTTERANCE) == "Ann-monday-0000 1.0010000000000001\n"
    assert build_reco2dur(MONDAY) == "monday 9.5\n"


@given(st.lists(st.sampled_from(["<s>", "</s>", "#0", "#", "0", "a", "é", " ", "<"]), max_size=9).map("".join))
def test_no_text_has_a_word_that_kaldi_forbids(text: str) -> None:
    line = build_text(UTTERANCE._replace(text=text))
    assert not re.search(rb"(?<!\w)(?:<s>|</s>|#0)(?!\w)", line.encode())


def test_a_long_text_of_forbidden_words() -> None:
    assert build_text(UTTERANCE._replace(text="#0" * 500_000 + " a " + "#0<s>" * 200_000)) == "Ann-monday-0000 a\n"


def test_no_duration_has_an_exponent() -> None:
    short = UTTERANCE._replace(length=1, recording=MONDAY._replace(rate=192000))
    line = build_utt2dur(short)
    assert "e" not in line.split()[1]
    assert int(float(line.split()[1]) * 192000) == 1


@pytest.mark.parametrize(
    "path",
    ["", "-", "~/a.wav", "a |", "| a", "a|b", "a.ark:12", "a.wav[0:3]", " a", "a ", "a\nb", "b,a", "a\t"],
)
def test_paths_that_kaldi_takes_for_something_else(path: str) -> None:
    with pytest.raises(FormatError, match=r"wav\.scp cannot name the path"):
        build_wav_scp(MONDAY._replace(path=path))


def test_a_directory_is_in_the_order_of_sort(tmp_path: Path) -> None:
    """As utils/validate_data_dir.sh compares it, where some speakers and keys are the beginnings of others."""
    keys = ["a", "a-b", "a b", "a+b", "a/b", "é", "你", "=", "a-0000"]
    speakers = ["a", "a-b", "a+b", "a b", "a-", "-", "é"]
    ids = sorted(utterance_ids(recording_id(key), 0, speaker) for key in keys for speaker in speakers)
    utterances = [UTTERANCE._replace(id=name, speaker_id=speaker) for name, speaker in ids]
    (tmp_path / "utt2spk").write_text("".join(map(build_utt2spk, utterances)))
    by_speaker = [(speaker, [name for name, each in ids if each == speaker]) for speaker in sorted({s for _, s in ids})]
    (tmp_path / "spk2utt").write_text("".join(f"{speaker} {' '.join(names)}\n" for speaker, names in by_speaker))
    stored = (tmp_path / "utt2spk").read_bytes()
    environment = os.environ | {"LC_ALL": "C"}
    for order in (["-k1,1"], ["-k2"]):
        command = ["sort", *order, str(tmp_path / "utt2spk")]
        assert subprocess.run(command, env=environment, capture_output=True, check=True).stdout == stored
    subprocess.run(["sort", "-c", "-u", "-k1,1", str(tmp_path / "spk2utt")], env=environment, check=True)
    turned = [
        f"{name} {line.split()[0]}"
        for line in (tmp_path / "spk2utt").read_text().splitlines()
        for name in line.split()[1:]
    ]
    assert turned == stored.decode().splitlines()


@given(st.lists(st.tuples(st.text(min_size=1, max_size=5), WORDS, st.text(min_size=1, max_size=4)), max_size=6))
def test_what_is_built_is_parsed(samples: list[tuple[str, str, str]]) -> None:
    utterances = []
    for number, (key, text, speaker) in enumerate(samples):
        name, speaker_name = utterance_ids(recording_id(key), number, speaker)
        recording = MONDAY._replace(id=recording_id(key))
        utterances.append(Utterance(name, recording, number * 7919, number + 1, speaker_name, text))
    utterances.sort(key=lambda each: each.id)
    lists = [
        ["".join(build(each) for each in utterances).encode()] for build in (build_segments, build_text, build_utt2spk)
    ]
    parsed = list(parse_segments(*lists))
    assert [each.fields["id"] for each in parsed] == [each.id for each in utterances]
    for segment, utterance in zip(parsed, utterances, strict=True):
        assert segment.recording == utterance.recording.id
        assert segment.speaker == utterance.speaker_id
        assert build_text(utterance._replace(text=segment.text)) == build_text(utterance)
        assert segment.span(16000, 152000) == (utterance.offset, utterance.length, None)


def test_texts_and_speakers_that_are_missing() -> None:
    segments = b"a r 0 1\nb r 1 2\nc s 2 -1\n"
    found = list(parse_segments([segments], [b"0 x\na one  two\nc\n"], [b"b Ann\nd Bob\n"]))
    assert [(each.text, each.speaker, each.recording) for each in found] == [
        ("one  two", None, "r"),
        (None, "Ann", "r"),
        ("", None, "s"),
    ]
    assert found[2].span(1, 9) == (2, 7, None)


@pytest.mark.parametrize(
    ("segments", "text", "words"),
    [
        (b"b r 0 1\na r 0 1\n", b"", "line 2: segments is not in order at 'a': sort the file with LC_ALL=C sort"),
        (b"a r 0 1\na r 0 1\n", b"", "line 2: segments"),
        (b"a r 0 1\nc r 0 1\n", b"b x\na x\n", "line 2: text is not in order"),
        (b"a r 0\n", b"", "line 1: has 3 fields"),
        (b"a r 0 1 2\n", b"", "line 1: has 5 fields"),
        (b"a r 0 inf\n", b"", "line 1: 'inf' is not a time"),
        (b"a r 0 1\n\xff", b"", "line 2: is not UTF-8"),
    ],
)
def test_damaged_lists(segments: bytes, text: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        list(parse_segments([segments], [text]))


def test_paths_of_a_wav_scp_are_as_written() -> None:
    assert parse_recording("a /data/a b.wav\n") == ("a", "/data/a b.wav")
    assert parse_recording("b\t../b.flac") == ("b", "../b.flac")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a sox x.wav -t wav - |\n", "'sox .*' is a command, and commands are never run: name a file"),
        ("a | cat\n", ".* is a command"),
        ("a pipe:rm -rf\n", ".* is a command"),
        ("a\n", "has an id, but no path"),
        ("a b\0c\n", ".* is not a path"),
    ],
)
def test_commands_are_never_run(line: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        parse_recording(line)


def test_lists_are_merged_line_by_line() -> None:
    def numbered(template: str) -> Iterator[bytes]:
        return ((template % number).encode() for number in range(20_000))

    lists = [numbered(f"utt%06d {rest}\n") for rest in ("r 0 1", "some words", "speaker")]
    segments = parse_segments(*lists)
    assert next(segments).text == "some words"
    assert sum(1 for _ in segments) == 19_999
