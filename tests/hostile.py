"""Names that try to break a line, to command a terminal or to change how a line reads, and what no output may have."""

import os
import re

# What programs decode as names of files: bytes that are not UTF-8 are lone surrogates. No name has a dot or a slash.
NAMES = [
    *(f"line{end}etc" for end in ("\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")),
    *(
        "\x1b[2J",
        "\x1b]0;title\x07",
        "\x1bc",
        "\x9b31mred",
        "\x90q\x9c",
        "bell\x07",
        "back\x08\x08space",
        "\x7fdelete",
        "\x01",
    ),
    *(f"left{mark}right" for mark in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"),
    *(
        os.fsdecode(name)
        for name in (b"latin\xe9", b"\xff\xfe", b"cut\xe2\x80", b"long\xc0\x8a", b"\x9b2J", b"half\xed\xa0\x80")
    ),
    *("back\\\\nslash", "slash\\\n", "percent%0Aline", "tab\tulator", "\n", " \n "),
]
# What JSON and columns of tables can hold, too.
TEXTS = [*NAMES, "nul\0end", "half\ud83d", "\udc00half"]
# One name with all kinds, for what there is one of: a directory, a mount point.
EVIL = "a\x1b[31mb\nc\x85d\u202ee\u2028f\udcff"
_NEVER = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def tame(name: str) -> str:
    """A name without anything in it that must be quoted, and another one for each name."""
    return "".join(c if c.isalnum() and c.isascii() else f"_{ord(c):x}_" for c in name)


def lines_of(data: bytes, what: object = "") -> list[str]:
    """The lines of an output. Fails if a name has come through as it is."""
    text = data.decode()
    assert not _NEVER.search(text), (what, text)
    assert "Traceback" not in text, text
    return text.split("\n")
