"""The words of `-o`: which of them are our options, which are dropped, and which are refused."""

import os

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.cli.mount import command
from touchfs.cli.mount_options import split_words

DROPPED = (
    "rw,dev,suid,exec,sync,async,relatime,strictatime,auto,noauto,user,users,nofail,_netdev,defaults,nosuid,nodev,noatime,"
    "default_permissions,x-systemd.automount,x-systemd.idle-timeout=10min,X-mount.mkdir=0755,x-gvfs-hide,comment=a"
)


def parsed(*arguments: str):
    return command.make_context("touchfs mount", ["shards", "mnt", *arguments]).params


def test_words_that_mean_nothing_here_are_dropped():
    assert parsed("-o", DROPPED) == parsed("-o", "") == parsed()


def test_words_of_mount_are_options():
    words = "noexec,allow_root,fsname=a,subtype=touchfs,uid=1,gid=2,umask=077,fmask=0177,dmask=022"
    options = ["--noexec", "--allow-root", "--fsname=a", "--uid=1", "--gid=2", "--umask=077"]
    assert parsed("-o", words) == parsed(*options, "--fmask=0177", "--dmask=022")
    assert parsed("-o", "ro,noexec", "-o", "rw,exec") == parsed()
    assert parsed("-o", "control=none") == parsed("--control=none")


def test_every_option_is_a_word():
    """With `-` or `_`, and a value of its type; several values of one that takes several."""
    values = {"uid": "1", "gid": "1", "workers": "2", "sample_rate": "1", "features": None, "audio_root": "/"}
    values |= {"overlays": "a.parquet"}
    for option in command.params:
        if not isinstance(option, click.Option) or option.opts == ["-o"] or option.hidden:
            continue
        long = option.opts[-1]
        name = long.removeprefix("--")
        value = values.get(option.name, _value(option))
        if option.is_flag:
            assert parsed("-o", name) == parsed("-o", name.replace("-", "_")) == parsed(long) != parsed()
        elif value is not None:
            assert parsed("-o", f"{name.replace('-', '_')}={value}") == parsed(f"{long}={value}") != {}, name
    assert parsed("-o", "trust=root,trust=root") == parsed("--trust", "root", "--trust", "root")


def _value(option: click.Option) -> str:
    match option.type:
        case click.Choice():
            return str(option.type.choices[-1])
        case _:
            return "077" if option.metavar == "MODE" else "7"


def test_later_options_win():
    assert parsed("-o", "workers=3,workers=4")["workers"] == 4
    assert parsed("--workers=2", "-o", "workers=3")["workers"] == 2


def test_words_come_before_options_that_can_be_repeated():
    """Whatever the order typed, as docs/mounting.md says."""
    words, option = ("-o", "overlay=b.parquet,overlay=c.parquet"), ("--overlay", "a.parquet")
    names = [os.path.basename(each) for each in parsed(*option, *words)["overlays"]]
    assert names == ["b.parquet", "c.parquet", "a.parquet"]
    assert parsed(*words, *option)["overlays"] == parsed(*option, *words)["overlays"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("workrs=2", "-o workrs is unknown: did you mean workers?"),
        ("allow-othr", "-o allow-othr is unknown: did you mean allow_other?"),
        ("zzzzzzzz", "-o zzzzzzzz is unknown"),
        ("context=system_u", "-o context is unknown"),
        ("help", "-o help is unknown"),
        ("max_read=4096", "-o max_read cannot be used: the kernel and touchfs agree on it"),
        ("io_uring", "-o io_uring is unknown"),
        ("remount,ro", "-o remount cannot be used"),
        ("workers", "-o workers needs a value: workers=VALUE"),
        ("read_only", "-o read_only cannot be used: every mount is, and `control=none` leaves out the control files"),
        ("noexec=1", "Option '--noexec' does not take a value."),
        ("subtype=x", "Invalid value for '--subtype': 'x' is not 'touchfs'."),
        ('fsname="a', "a quote is not closed"),
        ("env.=1", "-o env. needs a name: env.NAME=VALUE"),
        ("env.", "-o env. needs a name: env.NAME=VALUE"),
        ("env.X", "-o env.X needs a value: env.X=VALUE"),
        ("uid=root", "Invalid value for '--uid': 'root' is not a number: `id -u USER`"),
        ("gid=-1", "Invalid value for '--gid': '-1' is not a number"),
        ("uid=4294967295", "Invalid value for '--uid': '4294967295' is not a number"),
        ("fsname=", "Invalid value for '--fsname': the value is empty"),
        ("log_file=", "Invalid value for '--log-file': the value is empty"),
        ("state_dir=", "Invalid value for '--state-dir': the value is empty"),
        ("wait_timeout=nan", "Invalid value for '--wait-timeout': 'nan' is no number of seconds"),
        ("wait_timeout=inf", "Invalid value for '--wait-timeout': 'inf' is no number of seconds up to 2,000,000"),
        ("stuck_seconds=NaN", "Invalid value for '--stuck-seconds': 'NaN' is no number of seconds"),
        ("stuck_seconds=1e10", "Invalid value for '--stuck-seconds': '1e10' is no number of seconds"),
        ("timeout=inf", "Invalid value for '--timeout': 'inf' is no number of seconds up to 2,000,000"),
        ("revalidate=nan", "Invalid value for '--revalidate': 'nan' is no number of seconds"),
        ("decode_timeout=nan", "Invalid value for '--decode-timeout': 'nan' is no number of seconds"),
    ],
)
def test_others_are_refused(words, reason):
    with pytest.raises(click.UsageError) as caught:
        parsed("-o", words)
    assert reason in caught.value.format_message()
    assert caught.value.exit_code == 2


def test_variables_of_the_environment(monkeypatch):
    monkeypatch.delenv("TOUCHFS_TEST", raising=False)
    monkeypatch.setenv("TOUCHFS_TEST", "before")
    assert parsed("-o", "env.TOUCHFS_TEST=a=b\\,c") == parsed()
    assert os.environ["TOUCHFS_TEST"] == "a=b,c"


@given(st.lists(st.text(alphabet='a",\\= ', min_size=1)), st.booleans())
def test_any_value_can_be_written(words, in_quotes):
    escaped = [word.replace("\\", "\\\\").replace('"', '\\"') for word in words]
    if in_quotes:
        written = ",".join(f'"{word}"' for word in escaped)
    else:
        written = ",".join(word.replace(",", "\\,") for word in escaped)
    assert split_words(written) == words


@given(st.text(alphabet='ab",\\='))
def test_any_text_is_split_or_refused(text):
    try:
        assert all(split_words(text))
    except click.UsageError:
        assert '"' in text
