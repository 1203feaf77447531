"""Writers of the shards that touchfs reads. A shard is written under a temporary name and renamed when complete."""

from touchfs.containers.shar.write.audio import Audio
from touchfs.containers.shar.write.writer import SharWriter
from touchfs.containers.tar.shards_writer import TarShardsWriter
from touchfs.containers.tar.writer import TarWriter

__all__ = ["Audio", "SharWriter", "TarShardsWriter", "TarWriter"]
