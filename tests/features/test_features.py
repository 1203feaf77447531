"""Feature types: their Arrow types, texts, encodings, fingerprints and JSON form."""

import hashlib
import io
import json
import pickle

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image as pillow

from touchfs.core.errors import FormatError, MissingFileError, TouchfsError
from touchfs.features import (
    Array3D,
    Array4D,
    ClassLabel,
    Features,
    FeatureType,
    Image,
    Sequence,
    Value,
    Video,
    VideoRef,
    cache_fingerprint,
    features_fingerprint,
)
from touchfs.features.value import DTYPES

# The features of the golden fingerprint.
PETS = Features(
    {
        "image": Image(),
        "label": ClassLabel(names=["cat", "dog", "owl"]),
        "caption": Value("string"),
        "score": Value("float32"),
        "series": Sequence(Value("float32")),
        "cube": Array3D(shape=(2, 2, 3)),
    }
)
EVERY = Features(
    {
        **{f"v_{dtype}": Value(dtype) for dtype in DTYPES},
        **PETS,
        "many": ClassLabel(names=list("abcdefg")),
        "numbered": ClassLabel(num_classes=7),
        "jpeg": Image(encode_format="JPEG"),
        "clip": Array4D(shape=(2, 2, 2, 3), dtype="float32"),
        "path": Video(),
        "bytes": Video(storage="bytes"),
        "frames": Video(storage="frames", allowed_extensions=(".mp4",)),
        "deep": Sequence(Sequence(ClassLabel(names=["x", "y"]))),
    }
)


@pytest.mark.parametrize(
    "feature, text",
    [
        (Value("int32"), "Value('int32')"),
        (ClassLabel(names=["cat", "dog"]), "ClassLabel(names=['cat', 'dog'])"),
        (ClassLabel(names=list("abcdef")), "ClassLabel(num_classes=6)"),
        (ClassLabel(num_classes=2), "ClassLabel(names=['0', '1'])"),
        (Image(), "Image(encode_format='PNG')"),
        (Array3D(shape=(2, 2, 3)), "Array3D(shape=(2, 2, 3), dtype='uint8')"),
        (Array4D((1, 2, 3, 4), "float32"), "Array4D(shape=(1, 2, 3, 4), dtype='float32')"),
        (Sequence(Value("float32")), "Sequence(Value('float32'))"),
        (Video(), "Video(storage='path')"),
        (
            Video(storage="bytes"),
            "Video(storage='bytes', allowed_extensions=('.mp4', '.avi', '.mov', '.webm', '.mkv'))",
        ),
        (Video(allowed_extensions=("MP4",)), "Video(storage='path', allowed_extensions=('.mp4',))"),
    ],
)
def test_texts_that_fingerprints_are_made_of(feature, text):
    assert repr(feature) == feature.fingerprint_data() == text
    assert isinstance(feature, FeatureType)


def test_golden_fingerprints():
    assert features_fingerprint(PETS) == "39cb9288bb800052"
    assert features_fingerprint(Features({"video": Video(), "label": Value("int32")})) == "4c4a543d27b81b25"
    assert cache_fingerprint("TinyPets", "1.0.0", "default", "train") == "tinypets_default_train_babf06b9491b2f45"
    lance = cache_fingerprint("TinyPets", "1.0.0", "default", "train", storage_format="lance")
    assert lance == "tinypets_default_train_c7ee99358687c40e"
    with pytest.raises(ValueError, match="storage_format must be 'arrow' or 'lance', got 'csv'"):
        cache_fingerprint("TinyPets", "1.0.0", "default", "train", storage_format="csv")


def test_arrow_schema():
    schema = EVERY.to_arrow_schema()
    video = pa.struct(
        {
            "mode": pa.string(),
            "path": pa.string(),
            "bytes": pa.large_binary(),
            "extension": pa.string(),
            "media_type": pa.string(),
            "size": pa.int64(),
            "checksum": pa.string(),
        }
    )
    types = {
        "v_int8": pa.int8(),
        "v_uint64": pa.uint64(),
        "v_float16": pa.float16(),
        "v_bool": pa.bool_(),
        "v_string": pa.string(),
        "v_binary": pa.binary(),
        "image": pa.large_binary(),
        "label": pa.int64(),
        "series": pa.list_(pa.float32()),
        "cube": pa.large_binary(),
        "clip": pa.large_binary(),
        "path": video,
        "frames": video,
        "deep": pa.list_(pa.list_(pa.int64())),
    }
    assert {name: schema.field(name).type for name in types} == types
    assert schema.names == list(EVERY)
    for name, feature in EVERY.items():
        assert schema.field(name).metadata[b"stable_datasets.feature"] == type(feature).__name__.encode()
    assert schema.field("frames").metadata[b"stable_datasets.video.storage"] == b"frames"
    assert schema.field("label").metadata == {b"stable_datasets.feature": b"ClassLabel"}
    with pytest.raises(TypeError, match="Feature 'x' must be a FeatureType, got str"):
        Features({"x": "int32"}).to_arrow_schema()


def test_a_plain_mapping_is_features_if_its_values_are():
    import datasets

    plain = dict(EVERY)
    assert Features.of(plain) == EVERY and list(Features.of(plain)) == list(EVERY)
    assert type(Features.of(plain)) is Features and Features.of(EVERY) is EVERY
    with pytest.raises(
        TypeError, match="Feature 'x' must be a FeatureType, got Value: take one of the types of touchfs"
    ):
        Features.of({"x": datasets.Value("int32")})
    for given, kind in ((["x"], "list"), (None, "NoneType"), ("{}", "str")):
        with pytest.raises(TypeError, match=f"features are a mapping from .*, not {kind}$"):
            Features.of(given)


def test_json_form_round_trips():
    text = json.dumps(EVERY.to_json())
    again = Features.from_json(text)
    assert again == EVERY and list(again) == list(EVERY)
    assert features_fingerprint(again) == features_fingerprint(EVERY)
    assert Features.from_json(EVERY.to_json()) == EVERY
    assert pickle.loads(pickle.dumps(EVERY)) == EVERY
    assert ClassLabel(names=["a", "b"]) != ClassLabel(names=["b", "a"])
    assert Features.from_json('{"clip": {"type": "Video"}}') == {"clip": Video()}


@pytest.mark.parametrize(
    "text, problem",
    [
        ("[]", "not a JSON object"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"a": {"type": "Image"}, "a": {"type": "Image"}}', "given twice"),
        ('{"a": 1}', "'a'.*object with a 'type'"),
        ('{"a": {"type": "Audio"}}', "'Audio' is not one of Value"),
        ('{"a": {"type": "Value"}}', "needs dtype"),
        ('{"a": {"type": "Value", "dtype": "int7"}}', "Unknown dtype 'int7'"),
        ('{"a": {"type": "Value", "dtype": 7}}', "'dtype' is of another type"),
        ('{"a": {"type": "Image", "size": 7}}', "has no 'size'"),
        ('{"a": {"type": "ClassLabel"}}', "requires either"),
        ('{"a": {"type": "ClassLabel", "names": [1]}}', "'names' is of another type"),
        ('{"a": {"type": "Array3D", "shape": [1, 2]}}', "needs 3 sizes"),
        ('{"a": {"type": "Array3D", "shape": [1, 2, true]}}', "'shape' is of another type"),
        ('{"a": {"type": "Array3D", "shape": [1, 2, 3], "dtype": "O"}}', "Unknown dtype 'O'"),
        ('{"a": {"type": "Video", "storage": "tape"}}', "must be one of"),
        ('{"a": ' + '{"type": "Sequence", "feature": ' * 100 + "1" + "}" * 101, "nested more than"),
    ],
)
def test_json_that_is_not_the_form_is_refused(text, problem):
    with pytest.raises(FormatError, match=problem):
        Features.from_json(text)


def test_features_from_hugging_face():
    import datasets

    theirs = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog", "owl", "ant", "bee", "cow"]),
            "text": datasets.Value("large_string"),
            "numbers": datasets.Sequence(datasets.Value("float32")),
            "labels": datasets.Sequence(datasets.ClassLabel(names=["a", "b"])),
            "cube": datasets.Array3D(shape=(1, 2, 3), dtype="uint8"),
            "when": datasets.Value("timestamp[s]"),
            "struct": {"a": datasets.Value("int32")},
            "audio": datasets.Audio(),
        }
    )
    ours = Features.from_huggingface(theirs.arrow_schema.metadata)
    assert ours == {
        "image": Image(),
        "label": ClassLabel(names=["cat", "dog", "owl", "ant", "bee", "cow"]),
        "text": Value("string"),
        "numbers": Sequence(Value("float32")),
        "labels": Sequence(ClassLabel(names=["a", "b"])),
        "cube": Array3D(shape=(1, 2, 3)),
    }
    assert Features.from_huggingface(None) is None
    assert Features.from_huggingface({b"huggingface": b'{"info": {}}'}) is None
    assert Features.from_huggingface(
        {"huggingface": '{"info": {"features": {"a": [{"dtype": "int8", "_type": "Value"}]}}}'}
    ) == {"a": Sequence(Value("int8"))}
    with pytest.raises(FormatError, match="huggingface"):
        Features.from_huggingface({b"huggingface": b"{"})


def test_features_of_a_cache_of_hugging_face(tmp_path):
    import datasets

    theirs = datasets.Features({"label": datasets.ClassLabel(names=["cat", "dog"]), "text": datasets.Value("string")})
    datasets.Dataset.from_dict({"label": [1, 0], "text": ["a", "b"]}, theirs).save_to_disk(tmp_path / "saved")
    (path,) = (tmp_path / "saved").glob("*.arrow")
    with pa.OSFile(str(path), "rb") as file:
        ours = Features.from_huggingface(pa.ipc.open_stream(file).schema.metadata)
    assert ours == {"label": ClassLabel(names=["cat", "dog"]), "text": Value("string")}


def test_values():
    assert Value("int32").encode(np.int32(7)) == 7
    assert Value("float32").encode(np.array([1.5])) == 1.5
    assert Value("string").encode("x") == "x"
    label = ClassLabel(names=["cat", "dog"])
    assert (label.encode("dog"), label.encode(np.int64(1)), label.encode(0), label.encode(None)) == (1, 1, 0, None)
    assert (label.names, label.num_classes, label.int2str(1), label.str2int("cat")) == (["cat", "dog"], 2, "dog", 0)
    with pytest.raises(ValueError, match="'cow'"):
        label.encode("cow")
    with pytest.raises(ValueError, match="number 2"):
        label.int2str(2)
    assert Sequence(Value("float32")).encode(np.arange(3)) == [0, 1, 2]
    assert Sequence(label).encode(["dog", "cat"]) == [1, 0]
    assert Sequence(label).encode(None) is None
    cube = Array3D((1, 2, 2), "int16")
    assert cube.encode(np.arange(4).reshape(1, 2, 2)) == np.arange(4, dtype="<i2").tobytes()
    assert cube.encode([[[1, 2], [3, 4]]]) == np.array([1, 2, 3, 4], "<i2").tobytes()
    assert cube.encode(None) is None
    with pytest.raises(ValueError, match="does not fit Array3D"):
        cube.encode(np.zeros((1, 2, 3)))


def image_file(mode, image_format):
    file = io.BytesIO()
    pillow.new(mode, (4, 3), 7).save(file, image_format)
    return file.getvalue()


def test_images(tmp_path):
    jpeg = image_file("RGB", "JPEG")
    (tmp_path / "a.jpg").write_bytes(jpeg)
    image = Image()
    for value in (jpeg, bytearray(jpeg), memoryview(jpeg), tmp_path / "a.jpg", str(tmp_path / "a.jpg")):
        assert image.encode(value) == jpeg
    with pillow.open(tmp_path / "a.jpg") as opened:
        assert image.encode(opened) == jpeg
    assert image.encode({"bytes": jpeg, "path": "gone.jpg"}) == jpeg
    assert image.encode({"bytes": None, "path": str(tmp_path / "a.jpg")}) == jpeg
    assert image.encode(None) is None

    def format_of(value):
        return pillow.open(io.BytesIO(image.encode(value))).format

    assert format_of(pillow.open(io.BytesIO(jpeg))) == "JPEG"
    assert format_of(pillow.new("RGB", (4, 3))) == "PNG"
    for mode in ("RGBA", "LA", "P"):
        assert format_of(pillow.new(mode, (4, 3))) == "PNG"
    pixels = np.arange(36, dtype=np.uint8).reshape(3, 4, 3)
    assert (np.array(pillow.open(io.BytesIO(image.encode(pixels)))) == pixels).all()
    assert pillow.open(io.BytesIO(Image("JPEG").encode(pixels))).format == "JPEG"
    with pytest.raises(TypeError, match="Cannot encode image of type"):
        image.encode(7)
    with pytest.raises(ValueError, match="Cannot encode an array"):
        image.encode(np.zeros((3, 4, 5, 6)))
    with pytest.raises(TouchfsError, match="no such file"):
        image.encode(tmp_path / "gone.jpg")


def test_an_image_that_was_changed_since_it_was_opened_is_encoded(tmp_path):
    path = tmp_path / "a.png"
    pillow.new("RGB", (40, 30), "red").save(path)
    shown = pillow.open(path)
    shown.load()
    assert Image().encode(shown) == path.read_bytes()
    small = pillow.open(path)
    small.thumbnail((20, 20))
    assert pillow.open(io.BytesIO(Image().encode(small))).size == (20, 15)
    marked = pillow.open(path)
    marked.putpixel((3, 2), (0, 0, 255))
    path.write_text("not an image any more")
    assert pillow.open(io.BytesIO(Image().encode(marked))).getpixel((3, 2)) == (0, 0, 255)


def test_an_image_with_another_palette_and_a_later_frame_are_encoded(tmp_path):
    path = tmp_path / "a.png"
    red = pillow.new("P", (4, 3))
    red.putpalette([255, 0, 0] * 256)
    red.save(path)
    shown = pillow.open(path)
    shown.load()
    assert Image().encode(shown) == path.read_bytes()
    for is_loaded in (False, True):
        with pillow.open(path) as green:
            if is_loaded:
                green.load()
            green.putpalette([0, 255, 0] * 256)
            assert pillow.open(io.BytesIO(Image().encode(green))).convert("RGB").getpixel((0, 0)) == (0, 255, 0)
    frames = [pillow.new("L", (4, 3), level) for level in (10, 200)]
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])
    with pillow.open(tmp_path / "a.tif") as later:
        later.seek(1)
        assert pillow.open(io.BytesIO(Image().encode(later))).getpixel((0, 0)) == 200


def test_videos_in_files(tmp_path):
    data = b"\0\0\0\x18ftypmp42" + bytes(100)
    source = tmp_path / "in" / "A.MP4"
    source.parent.mkdir()
    source.write_bytes(data)
    (tmp_path / "in" / "link.mp4").symlink_to("A.MP4")
    cache = tmp_path / "cache"
    digest = hashlib.sha256(data).hexdigest()
    cell = Video().encode(source, cache_dir=cache)
    assert cell == {
        "mode": "path",
        "path": f"{digest}.mp4",
        "bytes": None,
        "extension": ".mp4",
        "media_type": "video/mp4",
        "size": len(data),
        "checksum": digest,
    }
    assert (
        Video().encode({"path": tmp_path / "in" / "link.mp4", "checksum": "mine"}, cache_dir=cache)["checksum"]
        == "mine"
    )
    staged = cache / "_assets" / "video" / f"{digest}.mp4"
    assert staged.is_file() and not staged.is_symlink() and staged.samefile(source)
    source.unlink()
    ref = VideoRef(cell, cache)
    assert (ref.mode, ref.extension, ref.media_type, ref.size, ref.checksum) == (
        "path",
        ".mp4",
        "video/mp4",
        len(data),
        digest,
    )
    assert ref.path == staged and ref.bytes == data


def test_videos_staged_without_links(tmp_path, monkeypatch):
    """Another file system."""
    (tmp_path / "a.mp4").write_bytes(b"video")

    def refuse(*_, **__):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", refuse)
    cell = Video().encode(tmp_path / "a.mp4", cache_dir=tmp_path / "cache")
    assert VideoRef(cell, tmp_path / "cache").bytes == b"video"
    assert [path.name for path in (tmp_path / "cache" / "_assets" / "video").iterdir()] == [cell["path"]]


def test_videos_in_bytes(tmp_path):
    (tmp_path / "a.webm").write_bytes(b"video")
    video = Video(storage="bytes")
    digest = hashlib.sha256(b"video").hexdigest()
    for value, extension in (
        (b"video", ".mp4"),
        (tmp_path / "a.webm", ".webm"),
        ({"path": tmp_path / "a.webm"}, ".webm"),
    ):
        cell = video.encode(value)
        assert cell["bytes"] == b"video" and cell["extension"] == extension and cell["path"] is None
        assert (cell["size"], cell["checksum"]) == (5, digest)
    cell = video.encode({"bytes": b"video", "extension": "MOV", "checksum": "mine"})
    assert (cell["extension"], cell["media_type"], cell["checksum"]) == (".mov", "video/quicktime", "mine")
    ref = VideoRef(cell)
    path = ref.path
    assert path.read_bytes() == ref.bytes == b"video" and ref.path == path
    del ref
    assert not path.exists()


def test_videos_that_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(NotImplementedError, match="video-frames layout"):
        Video(storage="frames").encode(b"")
    with pytest.raises(FileNotFoundError, match="Video path does not exist or is not a file") as raised:
        Video().encode(tmp_path / "gone.mp4", cache_dir=tmp_path)
    assert isinstance(raised.value, MissingFileError)
    with pytest.raises(ValueError, match=r"Unsupported video extension '.txt'. Allowed: \['.mp4'"):
        Video().encode(tmp_path / "a.txt", cache_dir=tmp_path)
    with pytest.raises(TypeError, match="must be str"):
        Video().encode(7, cache_dir=tmp_path)
    with pytest.raises(TypeError, match="must contain 'bytes' or 'path'"):
        Video("bytes").encode({"checksum": "x"})
    with pytest.raises(TypeError, match="must be path-like or bytes-like"):
        Video("bytes").encode(7)
    (tmp_path / "a.mp4").write_bytes(b"")
    with pytest.raises(ValueError, match="requires a cache_dir"):
        Video().encode(tmp_path / "a.mp4")


@pytest.mark.parametrize("name", ["/etc/hostname", "../secret", "..", "", "a/b", None, 7, "link"])
def test_a_video_is_a_file_of_the_cache(tmp_path, name):
    (tmp_path / "secret").write_text("secret")
    videos = tmp_path / "cache" / "_assets" / "video"
    videos.mkdir(parents=True)
    (videos / "link").symlink_to(tmp_path / "secret")
    ref = VideoRef({"mode": "path", "path": name, "bytes": None, "extension": ".mp4"}, tmp_path / "cache")
    for read in (lambda: ref.path, lambda: ref.bytes):
        with pytest.raises(TouchfsError):
            read()
