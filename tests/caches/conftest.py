"""What tests of caches share."""

import pytest
from lance_process import one_lance_process

from touchfs.caches.writers import video_frames
from touchfs.media.decoder.pool import DecodePool

__all__ = ["one_lance_process"]


@pytest.fixture(scope="module", autouse=True)
def one_pool():
    """Processes that decode stay for the next cache that a module writes: each takes a third of a second to start."""
    with DecodePool(timeout=60, memory=1 << 30) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "close", lambda: None)
        patch.setattr(video_frames, "DecodePool", lambda *_: pool)
        yield
