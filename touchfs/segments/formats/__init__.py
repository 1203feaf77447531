"""Formats of files with segments: subtitles, annotations and lists of segments. Nothing here does IO."""
