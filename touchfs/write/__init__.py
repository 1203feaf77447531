"""Writers of the shards that touchfs reads. A shard is written under a temporary name and renamed when complete."""

from touchfs.write.shar.audio import Audio
from touchfs.write.shar.writer import SharWriter
from touchfs.write.tar import TarWriter
from touchfs.write.tar_shards import TarShardsWriter

__all__ = ["Audio", "SharWriter", "TarShardsWriter", "TarWriter"]
