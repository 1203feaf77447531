"""Exact time slices of recordings in every coding: probe, read samples, render.

    with DecodePool() as pool:
        info = probe(content, pool)                                          # format and exact length, without decoding
        pcm = read_slice(content, info, first, length, pool)                 # samples [first, first + length)
        data = render(content, info, first, length, pool, Rendering(rate=16000, channels="mono"))

`content` gives random access to the bytes of the recording: a file, or a range of a shard. What `info.to_bytes()`
returns can be kept, so that later slices read only what they need. `preroll.py` says how exact slices are.
"""
