"""ELAN's annotations, `.eaf`: XML with time slots in milliseconds, and tiers of annotations between them.

    <TIME_ORDER><TIME_SLOT TIME_SLOT_ID="ts1" TIME_VALUE="1500"/>…</TIME_ORDER>
    <TIER TIER_ID="Ann" PARTICIPANT="Ann"><ANNOTATION>
      <ALIGNABLE_ANNOTATION ANNOTATION_ID="a1" TIME_SLOT_REF1="ts1" TIME_SLOT_REF2="ts2">
        <ANNOTATION_VALUE>Good morning.</ANNOTATION_VALUE>…

A segment is an annotation of a tier without a parent. Its speaker is the tier's participant. An annotation that refers
to it, such as a translation, is a version of its text by the name of the referring tier. Tiers that divide the time of
another one are left out. A time slot without a value is no time: the segment's span says so.

The XML is parsed as a stream by defusedxml, without a DTD, entities or external references. pympi-ling was not
taken, as it builds the whole tree by xml.etree, which expands entities, and fails without optional attributes.
Source: ELAN Annotation Format, EAFv3.0.xsd.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from xml.etree.ElementTree import ParseError

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.segments.formats.lines import SIZE_MAX, TEXT_MAX, at_most
from touchfs.segments.segment import SEGMENTS_MAX, Segment

# ELAN's own documents are 5 deep. An open element takes memory.
_DEPTH_MAX = 100
_MILLISECONDS_MAX = 15  # digits


def parse_eaf(blocks: Iterable[Buffer]) -> Iterator[Segment]:
    """Yield the segments of a file, tier by tier. Raises FormatError."""
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import DefusedXMLParser

    target = _Annotations()
    parser = DefusedXMLParser(target=target, forbid_dtd=True)
    try:
        for block in at_most(SIZE_MAX, blocks):
            parser.feed(bytes(block))
        parser.close()
    except ParseError as error:
        raise FormatError(f"line {error.position[0]}: is not XML: {error.msg}") from error
    except DefusedXmlException as error:
        raise FormatError("declares a document type or entities, which is not read") from error
    except (LookupError, ValueError) as error:
        raise FormatError("is XML in an encoding that is not read: convert it to UTF-8") from error
    if not target.is_eaf:
        raise FormatError("is XML, but no ANNOTATION_DOCUMENT of ELAN")
    return map(Segment.of, target.segments.values())


class _Annotations:
    """Collects the annotations while the parser calls it."""

    def __init__(self) -> None:
        self.is_eaf = False
        self.segments: dict[str, dict[str, Any]] = {}
        self._slots: dict[str, float] = {}
        self._tier: dict[str, str] = {}
        self._annotation: tuple[str, dict[str, str]] | None = None
        self._text: list[str] | None = None
        self._size = 0
        self._count = 0
        self._depth = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise FormatError(f"is XML with elements more than {_DEPTH_MAX} deep")
        if tag == "ANNOTATION_DOCUMENT":
            self.is_eaf = True
        elif tag == "TIME_SLOT":
            value = attributes.get("TIME_VALUE", "")
            if value.isdecimal() and len(value) <= _MILLISECONDS_MAX:
                self._limit(self._slots, 2)
                self._slots[attributes.get("TIME_SLOT_ID", "")] = int(value) / 1000
        elif tag == "TIER":
            self._tier = attributes
        elif tag in ("ALIGNABLE_ANNOTATION", "REF_ANNOTATION"):
            self._annotation = tag, attributes
        elif tag == "ANNOTATION_VALUE":
            self._text, self._size = [], 0

    def data(self, text: str) -> None:
        if self._text is not None:
            self._size += len(text)
            if self._size > TEXT_MAX:
                raise FormatError(f"the text of a segment has over {TEXT_MAX:,} characters")
            self._text.append(text)

    def end(self, tag: str) -> None:
        self._depth -= 1
        if tag == "ANNOTATION_VALUE" and self._annotation is not None and self._text is not None:
            kind, attributes = self._annotation
            text = "".join(self._text).strip()
            if kind == "REF_ANNOTATION":
                self._add_version(attributes, text)
            elif "PARENT_REF" not in self._tier:
                self._add_segment(attributes, text)
        if tag in ("ANNOTATION_VALUE", "ANNOTATION"):
            self._text = None
        if tag == "ANNOTATION":
            self._annotation = None

    def close(self) -> None:
        """Nothing is left to do at the end."""

    def _add_segment(self, attributes: dict[str, str], text: str) -> None:
        self._limit(self.segments, 1)
        times = {
            name: self._slots.get(attributes.get(reference, ""))
            for name, reference in (("start", "TIME_SLOT_REF1"), ("end", "TIME_SLOT_REF2"))
        }
        if None in times.values():
            times = {"start": None}
        labels = {
            "speaker": self._tier.get("PARTICIPANT", ""),
            "language": self._tier.get("LANG_REF", ""),
            "tier": self._tier.get("TIER_ID", ""),
        }
        # Annotations without an id, which the schema forbids, get one that no other has.
        key = attributes.get("ANNOTATION_ID") or f" {len(self.segments)}"
        self.segments[key] = {**times, "text": text, **{name: value for name, value in labels.items() if value}}

    def _add_version(self, attributes: dict[str, str], text: str) -> None:
        """Add a text to the segment that an annotation refers to. A reference to a reference is left out."""
        segment = self.segments.get(attributes.get("ANNOTATION_REF", ""))
        tier = self._tier.get("TIER_ID", "")
        if segment is not None and tier and text:
            self._count += 1
            if self._count > SEGMENTS_MAX:
                raise FormatError(f"has more than {SEGMENTS_MAX:,} annotations that refer to segments: split it")
            segment.setdefault("texts", {}).setdefault(tier, text)

    def _limit(self, collection: dict[str, Any], factor: int) -> None:
        if len(collection) >= factor * SEGMENTS_MAX:
            raise FormatError(f"has more than {SEGMENTS_MAX:,} segments: split it")
