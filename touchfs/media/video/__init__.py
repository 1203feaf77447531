"""Time slices of videos: probe, copy a span without decoding it, list and render frames.

    with DecodePool() as pool:
        info = probe_video(content, pool)                   # all packets of the pictures and of the sound, not decoded
        movie = remux(info, 12.5, 17.25)                    # an MP4 that shows exactly the frames of the span
        frames = frames_in(info, 12.5, 17.25, fps=2)        # their times, in ticks of `info.time_base`
        for jpeg in render_frames(content, info, frames, pool):
            ...

`content` gives random access to the bytes of the video: a file, or a range of a shard. What `info.to_bytes()` returns
can be kept, so that a span reads its packets only, from the key frame before it. The sound as WAV is a slice of the
same file (`media/slices`).

Times are seconds from the begin of the video: that of its first picture or sound. A span is rounded to ticks of the
pictures, as ffmpeg rounds `-ss`, and holds the frames whose time lies in `[start, end)`.
"""
