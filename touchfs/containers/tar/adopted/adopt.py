"""Find an index of another tool beside a tar, and take the members from it if it fits.

Offsets of samples alone (`x.tar.idx` of Lhotse, NeMo and Energon) do not say which members there are, so they are not
used. What is wrong with an index is a line in the log, and then the headers are read. So they are if most of the tar
is recordings that are so short that reading their heads, which lie beside the headers, reads all of it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import closing
from functools import partial

from touchfs.containers.tar.adopted import energon, wds2idx, webshart
from touchfs.containers.tar.adopted.listed import ListedMember, checked_members
from touchfs.containers.tar.layout import TAR_SUFFIX
from touchfs.containers.tar.layout.members import Member
from touchfs.containers.tar.tar_sound import are_near
from touchfs.core.errors import FormatError, NotFoundError, TouchfsError
from touchfs.core.location import Location
from touchfs.core.urls import shown
from touchfs.limits import Limits, too_long
from touchfs.posix.threads import run_at_once
from touchfs.source.data import DATA
from touchfs.source.store import FileType, StoredFile

log = logging.getLogger(__name__)

# Of a smaller tar, the headers cost no more than the sample of them: at a URL, a dozen of its blocks.
SIZE_MIN = 16 << 20
# A larger index is not worth its bytes. A member has at least 512 bytes in the tar, and 50 to 250 in an index.
_SHARE = 4

_Read = Callable[[], list[ListedMember]]


def adopted_members(path: str, file: StoredFile, limits: Limits) -> list[Member] | None:
    """The members of the tar at `path`, which is open as `file`, from an index beside it; None if no index fits."""
    stem, suffix = path[: -len(TAR_SUFFIX)], path[-len(TAR_SUFFIX) :]
    if suffix.lower() != TAR_SUFFIX or file.size < SIZE_MIN:
        return None
    kinds: list[tuple[str, _Read]] = [
        (stem + kind.SUFFIX, partial(_read, stem + kind.SUFFIX, kind.parse, file.size, limits))
        for kind in (wds2idx, webshart)
    ]
    kinds.append((os.path.join(energon.META, energon.SQLITE_NAME), partial(energon.read, path, file.size)))
    # At a URL each of them is a request, so all are asked for together.
    outcomes = run_at_once(_outcome, [read for _, read in kinds], len(kinds) if Location.of(path).is_url else 1)
    for (index, _), outcome in zip(kinds, outcomes, strict=True):
        try:
            if isinstance(outcome, TouchfsError):
                raise outcome
            if are_near((member.name for member in outcome), file.size):
                raise FormatError("the heads of its many recordings are read anyway")
            members = checked_members(outcome, file)
        except NotFoundError:
            continue
        except TouchfsError as error:
            log.info("%s: its index %s is not used: %s", shown(path), shown(index), error)
            continue
        log.info("%s: %s members are those of its index %s", shown(path), f"{len(members):,}", shown(index))
        return members
    return None


def _outcome(read: _Read) -> list[ListedMember] | TouchfsError:
    try:
        return read()
    except TouchfsError as error:
        return error


def _read(
    index: str, parse: Callable[[bytes, int], list[ListedMember]], size: int, limits: Limits
) -> list[ListedMember]:
    found = DATA.stat(index)
    if found.type is not FileType.FILE:
        raise NotFoundError("is not a file", path=index)
    with closing(DATA.open(index, found.fingerprint)) as file:
        if file.size > size // _SHARE:
            raise FormatError(f"its {file.size:,} bytes are too many for a tar of {size:,} bytes")
        if file.size > limits.json:
            raise FormatError(too_long("it", limits.json, "text"))
        return parse(file.read(0, file.size), size)
