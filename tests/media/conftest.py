"""What tests of recordings and videos share."""

import pytest

from touchfs.media.decoder.pool import DecodePool


@pytest.fixture(scope="session")
def pool():
    """A child takes half a second of a processor to start. One that a test has had killed is replaced."""
    with DecodePool(timeout=60) as pool:
        yield pool
