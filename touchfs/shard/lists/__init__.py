"""Lists that name audio beside them, below `Limits.audio_root`: lines of JSON, and directories of Kaldi's."""
