"""libav, which reads most containers and codings, through the optional package PyAV."""

from __future__ import annotations

from typing import Any

import av
from av.container import InputContainer

# Tags need not be UTF-8. PyAV 19 replaces what is not, and has no such option any more; PyAV before it would raise.
_TAGS: dict[str, Any] = {} if int(av.__version__.partition(".")[0]) >= 19 else {"metadata_errors": "replace"}


def open_media(file: Any, **options: Any) -> InputContainer:
    """Open a path or a file for reading, as `av.open`, and raise what that raises."""
    container: InputContainer = av.open(file, "r", **_TAGS, **options)
    return container
