import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.caches.frame_windows import WindowPlan, Windows

VIDEOS = (10, 5, 3)


@pytest.mark.parametrize(
    ("plan", "counts"),
    [
        (WindowPlan(3, 0, 2), [4, 2, 1]),
        (WindowPlan(3, 1, 1), [6, 1, 0]),
        (WindowPlan(3, 1, 3), [2, 1, 0]),
        (WindowPlan(2, 0, 1, 6), [9, 0, 0]),
    ],
)
def test_golden_counts(plan, counts):
    windows = Windows(plan, VIDEOS)
    of_windows = [windows.locate(number)[0] for number in range(len(windows))]
    assert [of_windows.count(video) for video in range(3)] == counts
    assert len(windows) == sum(counts)


@given(
    st.builds(
        WindowPlan,
        st.integers(1, 6),
        st.integers(0, 3),
        st.integers(1, 6),
        st.none() | st.integers(1, 12),
    ),
    st.lists(st.integers(0, 20), max_size=5),
)
def test_windows_are_what_a_loop_over_starts_finds(plan, frame_counts):
    expected = [
        (video, start)
        for video, frames in enumerate(frame_counts)
        for start in range(0, frames, plan.hop)
        if start + (plan.length - 1) * (plan.skip + 1) < frames and frames >= (plan.min_frames or 0)
    ]
    windows = Windows(plan, frame_counts)
    assert [windows.locate(number) for number in range(len(windows))] == expected
    for video, start in expected:
        assert len(plan.frames(start)) == plan.length
        assert plan.frames(start)[-1] < frame_counts[video]
    for number in (-1, len(windows)):
        with pytest.raises(IndexError):
            windows.locate(number)
    assert WindowPlan.parse(plan.name) == plan


@pytest.mark.parametrize("name", ["L0-s0-h1", "L1-s0-h0", "L01-s0-h1", "L1-s0", "L1-s0-h1-m", "l1-s0-h1", "L1-s-1-h1"])
def test_other_names_are_no_plans(name):
    assert WindowPlan.parse(name) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0,), "window_length must be >= 1, got 0"),
        ((1, -1), "frame_skip must be >= 0, got -1"),
        ((1, 0, 0), "hop_size must be >= 1, got 0"),
    ],
)
def test_impossible_plans(values, message):
    with pytest.raises(ValueError, match=message):
        WindowPlan(*values)
