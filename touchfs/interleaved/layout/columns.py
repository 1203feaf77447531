"""The columns that every table of interleaved samples has, in their order. All others are passed through."""

from __future__ import annotations

RESERVED_COLUMNS = (
    "sample_id",
    "position",
    "modality",
    "content_type",
    "text_content",
    "binary_content",
    "source_ref",
    "materialize_error",
)
# The position of a row that holds what belongs to the sample and to none of its items.
METADATA_POSITION = -1
TEXT, IMAGE, METADATA = MODALITIES = ("text", "image", "metadata")
