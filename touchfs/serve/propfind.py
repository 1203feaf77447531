"""PROPFIND of WebDAV, RFC 4918: the properties of files and of what is in a directory. It is sent while it is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import NamedTuple
from xml.etree.ElementTree import Element, ParseError
from xml.sax.saxutils import escape, quoteattr

from touchfs.core.errors import FormatError
from touchfs.serve.answer import HttpAnswer, text
from touchfs.serve.directories import batched
from touchfs.serve.served_tree import Served

BODY_MAX = 1 << 16
# Each entry of a listing repeats the XML of properties that it does not have.
_OTHERS_MAX = 1 << 13
_DAV = "{DAV:}"
_NAMES = ("resourcetype", "getcontentlength", "getcontenttype", "getetag", "getlastmodified")
_HEAD = '<?xml version="1.0" encoding="utf-8"?>\n<D:multistatus xmlns:D="DAV:">\n'


class RequestedProperties(NamedTuple):
    """The properties that a PROPFIND asks for.

    They are `names`, which we know, and `others`, as XML. With `everything` they are all that we know. With
    `names_only`, the answer has their names without values.
    """

    names: tuple[str, ...] = _NAMES
    others: str = ""
    everything: bool = True
    names_only: bool = False


def parse_propfind(body: bytes) -> RequestedProperties:
    """The properties that the body of a request asks for: all of them if it is empty. Raises FormatError."""
    if not body.strip():
        return RequestedProperties()
    root = _parse(body)
    if root.tag != _DAV + "propfind":
        raise FormatError("the request is no propfind")
    kinds = {child.tag: child for child in root}
    if _DAV + "propname" in kinds:
        return RequestedProperties(names_only=True)
    if (listed := kinds.get(_DAV + "prop")) is None:
        return RequestedProperties()
    tags = list(dict.fromkeys(child.tag for child in listed))
    names = tuple(name for name in _NAMES if _DAV + name in tags)
    others = "".join(_empty(tag) for tag in tags if tag not in {_DAV + name for name in names})
    if len(others) > _OTHERS_MAX:
        raise FormatError("the request asks for too many properties that there are not")
    return RequestedProperties(names, others, everything=False)


def answer_properties(requested: RequestedProperties, resources: Iterable[Served]) -> HttpAnswer:
    """The answer with the properties of these files and directories."""
    headers = (("Content-Type", "application/xml; charset=utf-8"),)
    return HttpAnswer(HTTPStatus.MULTI_STATUS, headers, batched(_multistatus(requested, resources)))


def refuse_depth() -> HttpAnswer:
    """The answer to a request for a directory and everything below it."""
    body = '<?xml version="1.0" encoding="utf-8"?><D:error xmlns:D="DAV:"><D:propfind-finite-depth/></D:error>'
    return text(HTTPStatus.FORBIDDEN, body, form="application/xml")


def _parse(body: bytes) -> Element:
    # On demand: most servers are never asked.
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        root: Element = fromstring(body, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise FormatError("the request is not XML, or has a DTD") from error
    return root


def _empty(tag: str) -> str:
    """The XML of an element without content. A tag of ElementTree is `name` or `{namespace}name`."""
    namespace, brace, name = tag[1:].rpartition("}")
    return f"<x:{name} xmlns:x={quoteattr(namespace)}/>" if brace else f"<{tag}/>"


def _multistatus(requested: RequestedProperties, resources: Iterable[Served]) -> Iterator[str]:
    yield _HEAD
    for resource in resources:
        values = {name: value for name, value in _values(resource).items() if name in requested.names}
        if requested.names_only:
            values = dict.fromkeys(values, "")
        found = "".join(f"<D:{name}>{value}</D:{name}>" for name, value in values.items())
        missing = "".join(f"<D:{name}/>" for name in requested.names if name not in values) + requested.others
        present = _propstat(found, HTTPStatus.OK) if found else ""
        absent = _propstat(missing, HTTPStatus.NOT_FOUND) if missing and not requested.everything else ""
        yield f"<D:response><D:href>{resource.url}</D:href>{present}{absent}</D:response>\n"
    yield "</D:multistatus>\n"


def _propstat(properties: str, status: HTTPStatus) -> str:
    line = f"HTTP/1.1 {status.value} {status.phrase}"
    return f"<D:propstat><D:prop>{properties}</D:prop><D:status>{line}</D:status></D:propstat>"


def _values(resource: Served) -> dict[str, str]:
    """The XML of each property that a file or a directory has. A URL and these are ASCII without control characters."""
    values = {"resourcetype": "<D:collection/>" * resource.is_directory, "getlastmodified": resource.modified}
    if not resource.is_directory:
        values |= {"getcontenttype": escape(resource.type), "getetag": escape(resource.etag)}
        if resource.size is not None:
            values["getcontentlength"] = str(resource.size)
    return values
