"""Forms of the files of interleaved samples: texts of documents, frames of TIFF files, and items without bytes."""
