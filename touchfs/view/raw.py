"""The view `shards/`: every field of a sample as a file, `<key>.<extension>`, and the transcript as `<key>.txt`."""

from __future__ import annotations

from touchfs.shard.sample import StoredSample
from touchfs.view.file import ViewFile


def files(sample: StoredSample) -> list[ViewFile]:
    """The files of a sample, in the order of its fields.

    If several fields have the same extension, the names of the later ones include the field:
    `<key>.<field>.<extension>`.
    """
    shown: dict[str | None, ViewFile] = {}
    for field in sample.fields.values():
        extension = f"{field.name}.{field.extension or ''}" if field.extension in shown else field.extension
        shown[extension] = ViewFile(extension, field, written=field.written)
    if sample.metainfo.text is not None:
        shown["txt"] = ViewFile.text("txt", sample.fields[sample.metainfo_field], sample.metainfo.text)
    return list(shown.values())
