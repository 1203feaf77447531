"""The Hub's client. What it has listed it would never look at again."""

from __future__ import annotations

import threading
from typing import Any

from huggingface_hub import HfFileSystem, hf_hub_url


class HuggingFaceClient(HfFileSystem):
    """Each call of ours is in a thread of its own. What it lists is forgotten with it."""

    def __init__(self, **options: Any) -> None:
        self._of_thread = threading.local()
        super().__init__(**options)

    @property
    def dircache(self) -> dict[str, list[dict[str, Any]]]:
        """The listings that this thread has made, by directory."""
        listed: dict[str, list[dict[str, Any]]] = self._of_thread.__dict__.setdefault("listed", {})
        return listed

    @dircache.setter
    def dircache(self, _: object) -> None:
        """Do nothing: the client sets an empty one at its start, and that of a thread is made when it lists."""

    def info(self, path: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        """The client's dictionary for a path, with the version of a file. Its default lists the whole directory."""
        return super().info(path, *arguments, **{"expand_info": True, **options})

    def url(self, path: str) -> str:
        """The URL of a file. Their method first asks whether it is a directory, which takes a request."""
        place: Any = self.resolve_path(path)
        if not hasattr(place, "repo_id"):  # a bucket
            return super().url(path)
        return hf_hub_url(
            place.repo_id,
            place.path_in_repo,
            repo_type=place.repo_type,
            revision=place.revision,
            endpoint=self.endpoint,
        )
