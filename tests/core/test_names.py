import os
import re
from collections.abc import Sequence
from time import process_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from touchfs.core import names
from touchfs.core.names import NAME_MAX, assign, flat_name, plain_path, quote, shorten, shown_extension, suffix_size

# Whatever may stand in JSON, with what is special more often than elsewhere.
CHARACTERS = st.sampled_from("ab/.%~2F\n\0\x7fé你😀\ud800\udc80\udfff") | st.characters()
KEYS = st.text(CHARACTERS, min_size=1, max_size=12) | st.sampled_from(
    [
        "a",
        "a.wav",
        "a.json",
        "a~2",
        "a~2.wav",
        "a/b",
        "a.wav/b",
        "/a",
        "a/",
        ".",
        "..",
        ".touchfs",
        "a" * 300,
        "é" * 130,
    ]
)
EXTENSIONS = st.sampled_from(
    [["wav", "json", "txt"], ["json"], [None], [""], ["wav"], ["t.npy", "wav"], ["e" * 300, "e" * 301], []]
)


def paths(keys: Sequence[str], extensions: Sequence[Sequence[str | None]]) -> list[list[bytes]]:
    return [
        [directory + b"/" + name if directory else name for name in names]
        for directory, names in assign(keys, extensions)
    ]


def named(*keys: str, extensions: Sequence[str | None] = ("wav",)) -> list[str]:
    """The first file of each sample."""
    return [each[0].decode() for each in paths(keys, [extensions] * len(keys))]


@given(st.lists(st.tuples(KEYS, EXTENSIONS), max_size=12))
@example([("a/b", ["wav"]), ("a", [None]), ("a~2", [None]), ("a", [None])])
@example([("x", ["wav", "json"]), ("x.wav", ["wav"]), ("x.wav/y", ["wav"]), ("x~2", ["wav"])])
@example([("\udfff", [None]), ("\udced\udcbf\udcbf", [None]), ("\udfff/x", [None]), ("\udced\udcbf\udcbf/x", [None])])
def test_names_are_unique_legal_and_stable(samples: list[tuple[str, list[str | None]]]) -> None:
    keys, extensions = [key for key, _ in samples], [each for _, each in samples]
    found = paths(keys, extensions)
    assert found == paths(keys, extensions)
    assert [len(each) for each in found] == [len(each) for each in extensions]
    files = [path for each in found for path in each]
    directories = {path[: match.start()] for path in files for match in re.finditer(b"/", path)}
    assert len(set(files)) == len(files), "two files have one path"
    assert not directories.intersection(files), "a file and a directory have one path"
    for path in files:
        assert len(path) < 1300
        for component in path.split(b"/"):
            assert 0 < len(component) <= NAME_MAX
            assert component not in (b".", b"..", b".touchfs")
            assert not re.search(rb"[\x00-\x1f\x7f]", component)
            component.decode("utf-8")
    for own, each in zip(found, extensions, strict=True):
        for path, extension in zip(own, each, strict=True):
            assert path.endswith(b"." + shown_extension(extension).encode()) or extension is None
            assert suffix_size(extension) == len(b"." + shown_extension(extension).encode()) * (extension is not None)


@given(st.lists(KEYS, max_size=12, unique=True))
def test_a_sample_has_another_name_only_if_its_own_is_taken(keys: list[str]) -> None:
    found = [path for [path] in paths(keys, [["wav"]] * len(keys))]
    directories = {path[: match.start()] for path in found for match in re.finditer(b"/", path)}
    for i, key in enumerate(keys):
        [[natural]] = paths([key], [["wav"]])
        assert found[i] == natural or natural in directories or natural in found[:i]


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("%~2F./\n"), max_size=9))
@example("%2F")
@example("%~0")
def test_quoting_text_can_be_undone(component: str) -> None:
    quoted = quote(component)
    whole = {b"%2F": "", b"%2E": ".", b"%2E%2E": "..", b"%2Etouchfs": ".touchfs"}
    back = whole.get(quoted)
    if back is None or component == "/":
        back = re.sub(rb"%([0-9A-F]{2})", lambda match: bytes([int(match[1], 16)]), quoted).decode()
    assert back == component


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), unique=True, max_size=6))
def test_different_components_have_different_names(components: list[str]) -> None:
    components = [component for component in components if "/" not in component]
    assert len({quote(component) for component in components}) == len(components)
    long = [component + "x" * 300 for component in components]
    assert len({shorten(quote(each), b".wav") for each in long}) == len(components)


def test_keys_become_paths() -> None:
    assert named("utt-1", "日本語/é", "a b") == ["utt-1.wav", "日本語/é.wav", "a b.wav"]
    assert named("/data/x.wav", "../../etc/passwd", "a//b/", "./x") == [
        "%2F/data/x.wav",
        "%2E%2E/%2E%2E/etc/passwd.wav",
        "a/%2F/b/%2F.wav",
        "%2E/x.wav",
    ]
    assert named("a\nb", "tab\there", "100%", "100%25", "%~x", "\x7f") == [
        "a%0Ab.wav",
        "tab%09here.wav",
        "100%.wav",
        "100%2525.wav",
        "%25~x.wav",
        "%7F.wav",
    ]
    assert named(".touchfs", ".", "..", extensions=[None]) == ["%2Etouchfs", "%2E", "%2E%2E"]
    assert named("\ud800", os.fsdecode(b"\xff\xfe")) == ["%ED%A0%80.wav", "%FF%FE.wav"]


def test_the_nth_holder_of_a_key() -> None:
    assert named("x", "x", "x~2", "x", "x~3") == ["x.wav", "x~4.wav", "x~2.wav", "x~5.wav", "x~3.wav"]
    found = paths(["x", "x", "y"], [["wav"], ["json"], ["wav", "json"]])
    assert found == [[b"x.wav"], [b"x~2.json"], [b"y.wav", b"y.json"]], "files of two samples look like one's"


def test_all_files_of_a_sample_have_the_same_number() -> None:
    assert paths(["x.wav", "x"], [["wav"], ["wav", "json"]]) == [[b"x.wav"], [b"x~2.wav", b"x~2.json"]]


def test_the_extension_is_not_doubled() -> None:
    assert named("talk.wav", "a.WAV", ".wav", "b.wav.wav") == ["talk.wav", "a.WAV.wav", ".wav.wav", "b.wav.wav"]


def test_a_file_gives_way_to_a_directory_wherever_it_comes() -> None:
    for keys in (["a", "a/b"], ["a/b", "a"]):
        assert set(named(*keys, extensions=[None])) == {"a~2", "a/b"}
    assert named("a", "a.wav/b", "a.wav") == ["a~2.wav", "a.wav/b.wav", "a~3.wav"]


def test_long_keys() -> None:
    first, second = named("é" * 300, "é" * 300 + "x")
    assert first != second
    assert {len(first.encode()), len(second.encode())} <= set(range(253, 256))
    assert first.startswith("é" * 100)
    assert re.fullmatch(r"é+%~[0-9a-f]{16}\.wav", first)
    assert named("a" * 251) == ["a" * 251 + ".wav"]
    repeated = named(*["a" * 252] * 12)
    assert len(set(repeated)) == 12
    assert all(len(name) == 255 for name in repeated)
    assert repeated[11].endswith("~12.wav")


def test_a_name_keeps_the_dot_it_ends_in() -> None:
    assert [named("x", "x", extensions=[""]), named("x", extensions=[None])] == [["x.", "x~2."], ["x"]]
    assert paths(["x", "x"], [[None], [""]]) == [[b"x"], [b"x~2."]], "one key, so the second has a number"
    assert named("x", extensions=["."]) == ["x.."]
    assert named("x", extensions=["touchfs"]) == ["x.touchfs"]


def test_an_extension_that_leaves_no_room_is_shortened_like_a_name() -> None:
    first, second = named("a", extensions=["é" * 200]), named("a", extensions=["é" * 200 + "x"])
    assert first != second
    for name in (*first, *second, *named("k" * 300, extensions=["e" * 300]), *named(*"aa", extensions=["~" * 300])):
        assert len(name.encode()) <= NAME_MAX
    assert re.fullmatch(r"a\.é+%~[0-9a-f]{16}", first[0])
    assert shown_extension("é" * 200) == first[0][2:], "what a sample calls it is what the tree does"
    assert named("a", extensions=["e" * 199]) == ["a." + "e" * 199]
    assert len(flat_name("k" * 300, b"." + b"~" * 199, 12)) <= NAME_MAX
    assert flat_name("k", b"." + b"~" * 199, 2) != flat_name("k", b"." + b"~" * 198, 2)


def test_what_means_nothing_in_a_path_of_an_archive() -> None:
    plain = {
        "./a": "a",
        "/a": "a",
        "a//./b/": "a/b",
        "a": "a",
        "../a": "../a",
        ".": ".",
        "//": ".",
        ".a/..b": ".a/..b",
    }
    assert {key: plain_path(key) for key in plain} == plain


@pytest.mark.parametrize(
    "key",
    ["a/" * 500 + "x", "a/" * 50_000, "/".join(["d" * 250] * 20), "/".join(["d" * 250] * 4), "é/" * 400, "\n/" * 9999],
)
def test_long_paths_can_be_opened(key: str) -> None:
    """A key longer than any path is one name, and the deepest one is not deeper than programs recurse."""
    first, other = named(key, key + "x")
    assert first != other
    for path in (first, other):
        assert len(path.encode()) <= 1024 + 1 + NAME_MAX
        assert path.count("/") <= 512
        assert ("/" in path) == (len(key.encode()) <= 1024)


@pytest.mark.parametrize("key", ["x", "d/x", "x" * 300])
def test_thousands_of_holders_of_one_key(key: str) -> None:
    """The next number is remembered: to look for it would take a minute of processor."""
    start = process_time()
    assert len(set(named(*[key] * 10_000))) == 10_000
    assert process_time() - start < 10


@given(
    st.lists(st.tuples(KEYS | st.text("ab.é", min_size=1, max_size=3), EXTENSIONS), max_size=8)
    | st.lists(st.tuples(st.text("ab.é~", min_size=1), EXTENSIONS), max_size=8)
)
def test_plain_keys_are_named_as_one_by_one(samples):
    keys, extensions = [key for key, _ in samples], [each for _, each in samples]
    together = list(assign(keys, extensions))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(names, "_plain_names", lambda keys, extensions: None)
        assert together == list(assign(keys, extensions))


def test_only_plain_keys_are_named_together():
    def are_plain(*keys: str) -> bool:
        return names._plain_names(keys, [["json", None]] * len(keys)) is not None

    assert are_plain("a", "é.b", "a~2", "a" * 250)
    for key in ("", ".", "..", ".touchfs", "a/b", "a%", "\n", "\x9f", "\ud800", "a.json", "a" * 251, "é" * 126):
        assert not are_plain("a.b", key), key
    assert not are_plain("a", "a")
