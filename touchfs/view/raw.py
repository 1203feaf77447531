"""The view `shards/`: every field of a sample as a file, `<key>.<extension>`, and the transcript as `<key>.txt`."""

from __future__ import annotations

from touchfs.sample import Sample
from touchfs.shard.touch import METAINFO_NAMES
from touchfs.view.file import File


def files(sample: Sample) -> list[File]:
    """The files of a sample, in the order of its fields."""
    shown = [File(field.extension, field) for field in sample.fields.values()]
    metainfo = metainfo_field(sample)
    if metainfo is not None and sample.metainfo.text is not None:
        shown.append(File.text("txt", sample.fields[metainfo], sample.metainfo.text))
    return shown


def metainfo_field(sample: Sample) -> str | None:
    """The name of the field that the sample's metainfo came from."""
    return next((name for name in sample.fields if name in METAINFO_NAMES), None)
