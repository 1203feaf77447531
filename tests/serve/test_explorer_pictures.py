"""Pictures are made once, few at a time, and hold up no file."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from served_pages import AtPort, tone
from tars import write_tar
from tree_servers import application_of, in_this_process
from waiting import wait_until

import touchfs.serve.server as server_module
from touchfs.indexing import open_dataset
from touchfs.serve import pictures
from touchfs.serve.access import HttpAccess, ServeAddress
from touchfs.serve.application import Application
from touchfs.serve.served_tree import ServedTree
from touchfs.serve.server import TreeServer

WAVE = "/-/wave/shards/t/a{}.wav.svg"


@pytest.fixture
def running(tmp_path):
    """A server, and its pictures."""
    place = write_tar(tmp_path / "t.tar", {f"a{number}.wav": tone(0.2, 300 + number) for number in range(40)})
    application = Application(ServedTree(open_dataset(os.fspath(place), in_place=True)), HttpAccess("localhost", None))
    server = TreeServer(ServeAddress("localhost", "127.0.0.1", 0), application, 64)
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield AtPort(server.bind_addr[1]), application.explorer.pictures
    server.stop()
    thread.join()


def test_a_picture_is_made_once_and_has_a_version(running, monkeypatch):
    server, _ = running
    got = server.ask(WAVE.format(1))
    assert got.status == 200
    assert server.ask(WAVE.format(1), If_None_Match=got.headers["ETag"]).status == 304
    monkeypatch.delattr(pictures, "recording_info")  # what is kept needs none
    assert server.ask(WAVE.format(1)).body == got.body
    assert server.ask(WAVE.format(1).replace("wave", "spectrogram").replace("svg", "png")).status == 200
    assert server.ask(WAVE.format(1), "HEAD").headers["ETag"] == got.headers["ETag"]


@pytest.mark.parametrize("width", ["15", "2401", "x", "-1"])
def test_the_width_of_a_picture_has_bounds(running, width):
    server, _ = running
    assert server.ask(f"{WAVE.format(1)}?w={width}").status == 400


def test_files_are_served_while_pictures_wait(running, monkeypatch):
    """Both places are taken, and as many wait as may."""
    server, drawn = running
    monkeypatch.setattr(drawn.turns, "seconds", 20.0)
    with drawn.turns.slots, drawn.turns.slots, ThreadPoolExecutor(pictures.WAITING) as pool:
        waiting = [pool.submit(server.ask, WAVE.format(number)) for number in range(pictures.WAITING)]
        wait_until(lambda: drawn.turns.waiting == pictures.WAITING)
        refused = server.ask(WAVE.format(39))
        assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
        for number in range(40):
            assert server.ask(f"/shards/t/a{number}.wav").status == 200
        assert not any(each.done() for each in waiting)
        drawn.turns.slots.release()
        assert {each.result(60).status for each in waiting} == {200}
        drawn.turns.slots.acquire()


def test_forty_clients_at_once_are_all_shown_pictures(tmp_path, monkeypatch):
    """They are of one address: those beyond its answers wait, as pictures do."""
    monkeypatch.setattr(server_module, "QUEUE_SECONDS", 60.0)
    place = write_tar(tmp_path / "t.tar", {f"a{number}.wav": tone(0.2, 300 + number) for number in range(40)})
    dataset = open_dataset(os.fspath(place), in_place=True)
    application = application_of(dataset)
    application.explorer.pictures.turns.seconds = 60.0
    with in_this_process(dataset, application=application) as port, ThreadPoolExecutor(40) as pool:
        asked = [pool.submit(AtPort(port).ask, WAVE.format(number)) for number in range(40)]
        assert {each.result(60).status for each in asked} == {200}


@pytest.mark.parametrize("data", [b"", b"RIFF no wav"])
def test_a_damaged_recording_is_no_mistake_of_the_server(tmp_path, data, caplog):
    place = write_tar(tmp_path / "t.tar", {"bad.wav": data})
    with in_this_process(open_dataset(os.fspath(place), in_place=True)) as port:
        got = AtPort(port).ask("/-/wave/shards/t/bad.wav.svg")
    assert got.status == 422 and got.body.startswith(b"not a recording that can be sliced: it ")
    assert not caplog.records


def test_who_waits_too_long_is_told_when_to_come_again(running, monkeypatch):
    server, drawn = running
    monkeypatch.setattr(drawn.turns, "seconds", 0.05)
    with drawn.turns.slots, drawn.turns.slots:
        got = server.ask(WAVE.format(3))
        assert (got.status, got.headers["Retry-After"]) == (503, "5")
    assert server.ask(WAVE.format(3)).status == 200


def test_an_image_that_is_too_large_is_not_decoded(tmp_path):
    header = (
        bytes.fromhex("89504e470d0a1a0a0000000d49484452")
        + (60000).to_bytes(4, "big") * 2
        + bytes.fromhex("08020000009b1d2c")
    )
    place = write_tar(tmp_path / "t.tar", {"bomb.png": header + b"\0" * 2_000_000})
    with in_this_process(open_dataset(os.fspath(place), in_place=True)) as port:
        got = AtPort(port).ask("/-/thumb/shards/t/bomb.png.jpg")
        assert (got.status, got.body.count(b"\n")) == (422, 1)
