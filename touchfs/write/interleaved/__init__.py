"""Writers of interleaved samples: batches of items become tars or Parquet files."""

from touchfs.write.interleaved.parquet import InterleavedParquetWriter
from touchfs.write.interleaved.webdataset import InterleavedWebdatasetWriter

__all__ = ["InterleavedParquetWriter", "InterleavedWebdatasetWriter"]
