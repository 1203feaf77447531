"""Writers of the shards touchfs reads: each makes one under a temporary name and puts it in place when it is whole."""

from touchfs.write.shar.audio import Audio
from touchfs.write.shar.writer import SharWriter
from touchfs.write.tar import TarWriter
from touchfs.write.tar_shards import TarShardsWriter

__all__ = ["Audio", "SharWriter", "TarShardsWriter", "TarWriter"]
