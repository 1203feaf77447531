"""The images of a sample as items: whole members of a tar, and frames of members that are TIFF files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, drive
from touchfs.form.plain import BYTES
from touchfs.interleaved.forms.tiff_frame import TIFF_FRAME, ContentSource, frame_detail, why_not_shown
from touchfs.interleaved.forms.tiff_reencoded import TIFF_REENCODED, reencoded_detail
from touchfs.interleaved.layout.image_members import PlacedImage
from touchfs.interleaved.layout.media_types import content_type_of, extension_of
from touchfs.interleaved.tiff import TiffFrame, frames
from touchfs.registry.contents import FieldContents
from touchfs.shard.sample import Field
from touchfs.view.interleaved import ViewItem

IMAGE = "image"
_SHOWN_MAX = 80
_TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


class ImageItems:
    """Makes items of images. `contents` reads the members that are TIFF files, to find their frames."""

    def __init__(self, contents: FieldContents) -> None:
        self._contents = contents

    def items(
        self, placed: Sequence[PlacedImage], fields: Mapping[str, Field], tokens: Iterable[Any]
    ) -> list[ViewItem]:
        """The items of the images of one sample. `fields` has their members, and `tokens` the names in the JSON."""
        wanted: dict[str, set[int]] = {}
        for image in placed:
            if image.member is not None and image.frame_index is not None:
                wanted.setdefault(image.member, set()).add(image.frame_index)
        files = {name: self._frames(fields[name], numbers) for name, numbers in wanted.items()}
        return [self._item(image, fields, files, token) for image, token in zip(placed, tokens, strict=True)]

    def _item(
        self,
        image: PlacedImage,
        fields: Mapping[str, Field],
        files: Mapping[str, Mapping[int, Field] | str],
        token: Any,
    ) -> ViewItem:
        extension = extension_of(image.content_type)
        if image.member is None:
            name = str(token)[:_SHOWN_MAX]
            extension, problem = extension_of(content_type_of(name)), f"missing member {name!r}"
            return ViewItem.failed(image.position, IMAGE, "", extension, problem)
        field = replace(fields[image.member], name=IMAGE, extension=extension)
        if image.frame_index is None:
            return ViewItem(image.position, field)
        found = files[image.member]
        shown = found if isinstance(found, str) else found.get(image.frame_index, "it has no such frame")
        if isinstance(shown, str):
            member = image.member[:_SHOWN_MAX]
            problem = f"failed to extract frame {image.frame_index} from {member!r}: {shown}"
            return ViewItem.failed(image.position, IMAGE, "", extension, problem)
        return ViewItem(image.position, replace(shown, name=IMAGE, extension=extension))

    def _frames(self, field: Field, numbers: Collection[int]) -> Mapping[int, Field] | str:
        """The fields of these frames of a TIFF file, by their numbers; a text with the reason if none can be shown.

        The file itself is the frame if it has only one, or if it is no TIFF, whatever its name says.
        """
        content = self._contents.content(field)
        if bytes(content.read(0, 4)) not in _TIFF_MAGIC:
            return {0: field}
        try:
            found = _found(content, {0, 1, *numbers})
        except FormatError as error:
            return error.message
        if len(found) == 1:
            return {0: field}
        if field.form is not BYTES:
            return "it is stored with holes"
        return {frame.number: _shown(frame, field) for frame in found}


def _shown(frame: TiffFrame, field: Field) -> Field:
    if why_not_shown(frame):
        return replace(field, form=TIFF_REENCODED, detail=reencoded_detail(frame.number))
    return replace(field, form=TIFF_FRAME, detail=frame_detail(frame.number, frame.size))


def _found(content: Content, numbers: Collection[int]) -> list[TiffFrame]:
    return drive(frames(content.size, numbers), ContentSource(content))
