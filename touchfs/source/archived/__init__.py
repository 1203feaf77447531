"""Files in archives as data: a file that the archive stores as it is, is a part of the archive's bytes."""
