"""libsndfile, which writes most codings of audio, through the optional package soundfile."""

from __future__ import annotations

from typing import Any

from touchfs.errors import MissingExtraError
from touchfs.extras import install_hint


def load_soundfile(purpose: str) -> Any:
    """Import the module soundfile, which has no types. `purpose` is what is done with it, for the error.

    Raises MissingExtraError if it is not installed, or libsndfile is not.
    """
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: soundfile is installed, libsndfile is not
        raise MissingExtraError(f"{purpose} with soundfile ({error}): {install_hint('media')}") from error
    return soundfile
