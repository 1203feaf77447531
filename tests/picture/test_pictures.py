"""Pictures of recordings, images and arrays: a sound is where it belongs, in all that can be drawn of it."""

import io
import re
import zlib

import numpy as np
import pytest
from PIL import Image
from rich import cells

from touchfs.picture.cells import Colours, bar, braille_wave, columns, half_blocks
from touchfs.picture.heat_map import extremes, heat_map
from touchfs.picture.palette import NIGHT, PAPER
from touchfs.picture.png import colours_png, levels_png
from touchfs.picture.shrink import bounds, fit, shrink
from touchfs.picture.sketch import Sketch
from touchfs.picture.spectrogram import ROWS, row_of, spectrogram
from touchfs.picture.waveform import wave_path
from touchfs.picture.width import cell_len, set_cell_size

RATES = [8000, 16000, 44100, 48000]


def tone(frequency, rate, seconds=1.0):
    return (0.5 * np.sin(2 * np.pi * frequency * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("frequency", [200, 1000, 3000])
def test_a_tone_is_brightest_in_its_mel_row(rate, frequency):
    levels = spectrogram(tone(frequency, rate), rate, 100)
    assert levels.shape == (ROWS, 100)
    rows = ROWS - 1 - levels[:, 10:-10].astype(int).argmax(axis=0)
    assert abs(rows - row_of(frequency, rate)).max() <= 1
    assert levels[:, 50].max() == 255
    quiet = (
        levels[ROWS - 1 - row_of(frequency, rate) - 12, 50],
        levels[ROWS - 1 - max(row_of(frequency, rate) - 12, 0), 50],
    )
    assert max(quiet) < 128


@pytest.mark.parametrize("columns", [50, 400])
def test_a_click_is_in_its_column(columns):
    samples = np.zeros(48000, np.float32)
    samples[30000] = 0.9
    loud = spectrogram(samples, 16000, columns).sum(axis=0, dtype=int)
    assert abs(int(np.mean(np.flatnonzero(loud == loud.max()))) - 30000 * columns // 48000) <= 1
    sketch = drawn(samples[:, None], 16000, columns)
    assert np.flatnonzero(sketch.high[0]).tolist() == [30000 * columns // 48000]
    assert sketch.peak == pytest.approx(0.9)


def drawn(samples, rate, columns, blocks=1):
    """A sketch of samples that come in blocks."""
    sketch, edges = Sketch(columns, rate, samples.shape[1]), bounds(len(samples), columns)
    for first, last in zip(bounds(columns, blocks)[:-1], bounds(columns, blocks)[1:], strict=True):
        begin, end = edges[first], edges[last]
        sketch.add(int(first), samples[begin:end], edges[first : last + 1] - begin)
    return sketch


def test_blocks_make_the_same_waveform_as_the_whole():
    samples = np.random.default_rng(0).uniform(-1, 1, (30_011, 2)).astype(np.float32)
    whole, parts = drawn(samples, 16000, 300), drawn(samples, 16000, 300, 7)
    assert np.array_equal(whole.low, parts.low) and np.array_equal(whole.high, parts.high)
    assert whole.rms == pytest.approx(parts.rms) and whole.rms == pytest.approx(float(np.sqrt((samples**2).mean())))
    slow = [samples[a:b].max(axis=0) for a, b in zip(bounds(30_011, 300), bounds(30_011, 300)[1:], strict=False)]
    assert np.array_equal(whole.high.T, slow)
    difference = np.abs(whole.levels().astype(int) - parts.levels().astype(int))
    assert np.percentile(difference, 90) <= 3  # windows at the seams are a little elsewhere


@pytest.mark.parametrize("samples", [
    np.zeros((1000, 1)), np.ones((1, 1)), np.zeros((0, 1)), np.full((900, 2), np.nan), np.full((900, 1), np.inf),
    np.zeros((1000, 9)),
], ids=["silence", "one", "none", "nan", "inf", "nine channels"])  # fmt: skip
def test_strange_recordings_have_pictures(samples):
    sketch = drawn(samples.astype(np.float32), 8000, 60)
    assert sketch.levels().shape == (ROWS, 60)
    assert np.isfinite(sketch.low).all() and np.isfinite(sketch.rms) and np.isfinite(sketch.peak)
    assert len(braille_wave(sketch.low[0], sketch.high[0], 3)) == 3
    assert wave_path(sketch.low[0], sketch.high[0], 40).startswith("M0,")


def test_any_rate_has_a_picture():
    assert drawn(np.ones((100, 1), np.float32), 2**32 - 1, 60).levels().shape == (ROWS, 60)


def test_clipped_samples_are_counted():
    samples = np.array([[0.1], [32767 / 32768], [-1.0], [0.99]], np.float32)
    assert drawn(samples, 8000, 2).clipped == 2


@pytest.mark.parametrize("palette", [PAPER, NIGHT], ids=["paper", "night"])
def test_a_png_has_its_pixels(palette):
    levels = np.arange(256, dtype=np.uint8).reshape(8, 32)
    image = Image.open(io.BytesIO(levels_png(levels, palette)))
    assert np.array_equal(np.asarray(image), levels)
    assert np.array_equal(np.asarray(image.convert("RGB")), palette[levels])
    bright = palette.astype(int).sum(axis=1)
    assert (np.diff(bright) <= 3).all() if palette is PAPER else (np.diff(bright) >= -3).all()


def test_a_png_of_colours():
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 3), np.uint8)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(colours_png(pixels)))), pixels)
    assert zlib.crc32(colours_png(pixels)) == zlib.crc32(colours_png(pixels))


def test_a_wave_of_svg_goes_around_its_columns():
    path = wave_path(np.array([-1, -0.5], np.float32), np.array([1, 0.5], np.float32), 40)
    assert path == "M0,0L1,10L1,30L0,40Z"
    assert re.fullmatch(r"M[0-9.,L]*Z", path)


def test_braille_of_a_wave():
    low, high = np.array([-1, -1, 0, 0], np.float32), np.array([1, 1, 0.01, 0.01], np.float32)
    assert braille_wave(low, high, 2) == ["⣿⣀", "⣿⠀"]


def test_half_blocks_in_true_colours_have_both_rows():
    pixels = np.array([[[255, 0, 0], [255, 0, 0]], [[0, 0, 255], [0, 0, 255]]], np.uint8)
    assert half_blocks(pixels, Colours.TRUE) == ["\x1b[38;2;255;0;0;48;2;0;0;255m▀▀\x1b[0m"]
    assert half_blocks(pixels, Colours.PALETTE) == ["\x1b[38;5;196;48;5;21m▀▀\x1b[0m"]
    assert half_blocks(np.zeros((3, 2, 3), np.uint8) + 255, Colours.NONE) == ["██", "██"]


def test_bars_are_exact_to_an_eighth():
    assert bar(1.0, 4) == "████"
    assert bar(0.5 + 1 / 32, 4) == "██▏"
    assert bar(1e-9, 4) == "▏" and bar(0, 4) == ""
    assert columns(np.array([1, 0.5, 0.01, 0]), 2) == ["█   ", "██▁ "]


def test_shrinking_is_the_mean_without_nan():
    values = np.array([[1, 3, np.nan, 8], [1, 3, np.nan, 8]])
    assert shrink(values, 1, 2).tolist() == [[2, 8]]
    assert shrink(np.array([[5.0]]), 2, 2).tolist() == [[5, 5], [5, 5]]
    assert shrink(np.zeros((4, 4, 3)), 2, 1).shape == (2, 1, 3)
    assert fit(4000, 1000, 80, 80) == (80, 20) and fit(3, 2, 80, 80) == (3, 2) and fit(10_000, 1, 80, 80) == (80, 1)


def test_a_heat_map_keeps_rows_and_ignores_outliers():
    values = np.zeros((80, 400))
    values[40:] = 1
    values[0, 0] = 1e30
    values[1, 1] = np.nan
    levels = heat_map(values, 8, 100)
    assert levels.shape == (8, 100)
    assert levels[5:].min() == 255 and levels[1:4].max() == 0
    assert heat_map(np.full((3, 3), np.nan), 8, 8).max() == 0


@pytest.mark.filterwarnings("error")
def test_the_largest_numbers_have_pictures():
    largest = np.finfo(np.float64).max
    low, high = extremes(np.array([largest, -largest, 0, 0]), 2)
    assert low.tolist() == [-1, 0] and high.tolist() == [1, 0]
    assert heat_map(np.full((9, 9), -largest), 3, 3).shape == (3, 3)


def test_a_line_has_the_extremes_of_its_columns():
    low, high = extremes(np.array([0, 10, 5, 5]), 2)
    assert low.tolist() == [-1, 0] and high.tolist() == [1, 0]


@pytest.mark.parametrize("text", ["plain", "你好。", "cafe\u0301", "Grüße · −3", "▏▀⣿", "한국어", ""])
def test_texts_take_the_cells_that_rich_counts(text):
    assert cell_len(text) == cells.cell_len(text)
    for size in range(8):
        assert cell_len(set_cell_size(text, size)) == size
