"""Names of directories of frames: canonical ones, and what is none."""

from fractions import Fraction

import pytest

from touchfs.core.errors import UsageError
from touchfs.view.frame_plan import FramePlan, parse_frame_plan


@pytest.mark.parametrize(
    ("name", "canonical", "fps"),
    [
        ("frames,fps=2", "frames,fps=2", Fraction(2)),
        ("frames,fps=2.0", "frames,fps=2", Fraction(2)),
        ("frames,fps=0010", "frames,fps=10", Fraction(10)),
        ("frames,fps=29.97", "frames,fps=29.97", Fraction(2997, 100)),
        ("frames,fps=0.000001", "frames,fps=0.000001", Fraction(1, 10**6)),
        ("frames,fps=0.50", "frames,fps=0.5", Fraction(1, 2)),
        ("frames,fps=1000", "frames,fps=1000", Fraction(1000)),
    ],
)
def test_a_name_has_a_canonical_form(name: str, canonical: str, fps: Fraction) -> None:
    plan = parse_frame_plan(name)
    assert (str(plan), plan.fps) == (canonical, fps)
    assert parse_frame_plan(canonical) == plan


WRONG = ["", "0", "1000.1", "-1", "1e2", ".5", "2,fps=2", "0.0000001", "٢", "2 ", "2/1"]


@pytest.mark.parametrize(
    "name", ["frames", "frames,", "fps=2", "Frames,fps=2", *(f"frames,fps={fps}" for fps in WRONG)]
)
def test_other_names_are_none(name: str) -> None:
    with pytest.raises(UsageError):
        parse_frame_plan(name)


def test_impossible_rates_are_refused() -> None:
    for millionths in (0, -1, 10**9 + 1):
        with pytest.raises(UsageError, match="it is a number up to 1000"):
            FramePlan(millionths)
