"""Messages of a real kernel, and bytes that are none."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_messages import MESSAGES
from touchfs_mount.messages.requests import HEADER, RESENT, Opcode, Request, parse, parse_init

from touchfs.core.errors import FormatError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LOOKUP", {"inode": 1, "name": b"shards"}),
        ("GETATTR", {"inode": 1}),
        ("READLINK", {"inode": 2}),
        ("READ", {"inode": 0x10000100000002, "offset": 0, "size": 4096}),
        ("READDIRPLUS", {"inode": 1, "offset": 0, "size": 0x20000}),
        ("STATFS", {"inode": 1}),
        ("GETXATTR", {"inode": 1, "size": 255, "name": b"security.selinux"}),
        ("INTERRUPT", {"inode": 0, "offset": 0x5E}),
    ],
)
def test_a_message_says_what_it_asks_for(name, expected):
    request = parse(MESSAGES[name])
    assert request.opcode == Opcode[name]
    told = Request(request.opcode, request.unique, 0, request.user, request.process)._replace(**expected)
    assert request == told


def test_all_messages_are_recognised():
    assert [Opcode(parse(message).opcode).name for message in MESSAGES.values()] == list(MESSAGES)


def test_the_first_message_has_what_the_kernel_offers():
    offer = parse_init(MESSAGES["INIT"])
    assert (offer.major, offer.minor, offer.max_readahead) == (7, 45, 0x20000)
    with pytest.raises(FormatError, match="no INIT"):
        parse_init(MESSAGES["READ"])


def test_the_same_request_has_the_same_key_when_it_is_sent_again():
    message = MESSAGES["LOOKUP"]
    length, opcode, unique, *others = HEADER.unpack_from(message)
    again = parse(HEADER.pack(length, opcode, unique | RESENT, *others) + message[HEADER.size :])
    assert again.unique == unique | RESENT
    assert again.key == parse(message).key != parse(MESSAGES["GETATTR"]).key


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_an_error(message):
    with contextlib.suppress(FormatError):
        parse(message)


@given(st.sampled_from(sorted(MESSAGES)), st.data())
def test_a_message_that_is_cut_short_or_too_long_is_an_error(name, data):
    message = MESSAGES[name]
    cut = data.draw(st.integers(0, len(message) - 1))
    for other in (message[:cut], message + b"\0"):
        with pytest.raises(FormatError):
            parse(other)


@given(st.sampled_from(sorted(MESSAGES)), st.data())
def test_a_message_of_another_length_that_says_so_is_a_request_or_an_error(name, data):
    message = MESSAGES[name]
    cut = data.draw(st.integers(HEADER.size, len(message)))
    shorter = cut.to_bytes(4, "little") + message[4:cut]
    with contextlib.suppress(FormatError):
        assert parse(shorter).opcode == Opcode[name]
