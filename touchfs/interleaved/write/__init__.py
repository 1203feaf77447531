"""Writers of interleaved samples: batches of items become tars or Parquet files."""

from touchfs.interleaved.write.parquet import InterleavedParquetWriter
from touchfs.interleaved.write.webdataset import InterleavedWebdatasetWriter

__all__ = ["InterleavedParquetWriter", "InterleavedWebdatasetWriter"]
