"""`_metadata.json` of a cache, in each of the three layouts: parsed with all its checks, and built.

    arrow-shards        shards of the Arrow IPC file format, with their names and row counts
    lance-rows          a Lance dataset in the directory itself
    lance-video-frames  a Lance dataset with a row for each frame, and a table of its videos

A cache that another tool wrote has the same members, except `features`, the JSON form of the features, which is ours.
Data names places, so what is named is the bare name of a file in the directory. The `path` of a video is a label only.
"""

from __future__ import annotations

METADATA_FILE = "_metadata.json"
