"""Videos and spans of them: what they are, their MP4 files, and their frames as JPEG files."""
