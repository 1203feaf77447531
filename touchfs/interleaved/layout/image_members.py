"""Find the member of a tar that each image of a sample is stored in.

A token that names a member is that member. Any other token, such as MINT-1T's `page_3_image_17`, means the default
member of the sample: what `image_member_field` names, else the first token that names a member, else the file beside
the JSON with the extension of an image. Several images of one TIFF are its frames, in order. But a token such as
`<key>.3.png`, of which writers leave out the member if the image has no bytes, means no other member.

Source: nemo_curator/stages/interleaved/io/readers/webdataset.py of NeMo Curator 1.4, which does not find extensions in
upper case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

from touchfs.interleaved.layout.document import Document
from touchfs.interleaved.layout.media_types import IMAGE_EXTENSIONS, content_type_of

_TIFF = "image/tiff"
_UNKNOWN = "application/octet-stream"


class PlacedImage(NamedTuple):
    """An image of a sample. `member` and `content_type` are None if no member was found for it."""

    position: int
    member: str | None
    content_type: str | None
    frame_index: int | None


def place_images(
    document: Document,
    keys: Iterable[str],
    members: Container[str],
    extensions: Sequence[str] = IMAGE_EXTENSIONS,
) -> list[PlacedImage]:
    """Return the images of a sample in the order of its JSON.

    `members` has the names of the tar's members. `keys` are names that the image beside the JSON may have, without an
    extension: the sample's id, and the name of the JSON. `extensions` have a dot.
    """
    keys = tuple(keys)
    default = default_member(document, keys, members, extensions)
    frames: Counter[str] = Counter()
    placed = []
    for position, token in document.images:
        member = resolve_member(token, members, None if _is_own_file(token, keys) else default)
        content_type = None if member is None else content_type_of(member) or _UNKNOWN
        frame = None
        if member is not None and content_type == _TIFF:
            frame = frames[member]
            frames[member] += 1
        placed.append(PlacedImage(position, member, content_type, frame))
    return placed


def _is_own_file(token: Any, keys: Iterable[str]) -> bool:
    """True if a token names a file of its sample. If the tar has none, that image is missing, and no other one."""
    return isinstance(token, str) and token.startswith(tuple(f"{key}." for key in keys))


def resolve_member(token: Any, members: Container[str], default: str | None) -> str | None:
    """Return the member that an image's token means."""
    return token if isinstance(token, str) and token in members else default


def default_member(
    document: Document,
    keys: Iterable[str],
    members: Container[str],
    extensions: Sequence[str] = IMAGE_EXTENSIONS,
) -> str | None:
    """Return the member that tokens mean which name none; None if there is no such member."""
    if document.image_member is not None and document.image_member in members:
        return document.image_member
    for _, token in document.images:
        if isinstance(token, str) and token in members:
            return token
    names = (key + written for key in keys for extension in extensions for written in _cases(extension))
    return next((name for name in names if name in members), None)


def _cases(extension: str) -> tuple[str, str, str]:
    return extension, extension.upper(), extension.title()
