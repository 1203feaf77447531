"""A file in memory that checks what a codec reads of it."""

from touchfs.core.extent import Buffer


class CheckedSource:
    """A read outside it is an error of the codec. It counts the bytes that are read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.read_bytes = 0

    def read(self, offset: int, length: int) -> Buffer:
        assert 0 <= offset <= offset + length <= len(self.data), (offset, length, len(self.data))
        self.read_bytes += length
        return self.data[offset : offset + length]

    read_nowait = read
