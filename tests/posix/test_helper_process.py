"""Helper processes: what they answer, and what is said of one that ends."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from touchfs.core.errors import FormatError
from touchfs.posix.helper_process import HelperEndedError, HelperProcess, answer_calls


def serve(begin: str) -> Callable[..., Any]:
    def answer(what: str, *arguments: Any) -> Any:
        match what:
            case "raise":
                raise FormatError("it is damaged")
            case "kill":
                os.kill(os.getpid(), arguments[0])
            case "exit":
                os._exit(3)
            case "print":
                print(*arguments)
            case "pid":
                return os.getpid()
        return begin, arguments

    return answer


def main() -> None:
    answer_calls(serve)


@pytest.fixture
def helper(monkeypatch: pytest.MonkeyPatch) -> Iterator[HelperProcess]:
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))
    helper = HelperProcess(os.path.basename(__file__).removesuffix(".py"), "begun")
    yield helper
    helper.close()


def test_it_answers_one_call_after_the_other(helper: HelperProcess) -> None:
    assert helper.call("answer", 1, b"x" * (1 << 22)) == ("begun", (1, b"x" * (1 << 22)))
    with pytest.raises(FormatError, match="it is damaged"):
        helper.call("raise")
    assert helper.call("print", "not an answer") == ("begun", ("not an answer",))
    pid = helper.call("pid")
    helper.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("call", "how"),
    [(("exit",), ""), *((("kill", end), f" by signal {end:d}") for end in (signal.SIGKILL, signal.SIGSEGV))],
)
def test_it_ends(helper: HelperProcess, call: tuple[Any, ...], how: str) -> None:
    for again in (call, call):
        with pytest.raises(HelperEndedError) as error:
            helper.call(*again)
        assert str(error.value) == how


def test_it_does_not_answer_the_call_that_comes_after_an_interrupted_one(helper: HelperProcess) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with pytest.raises(KeyboardInterrupt):
        helper.call("kill", signal.SIGSTOP)
    signal.signal(signal.SIGALRM, before)
    with pytest.raises(HelperEndedError):
        helper.call("answer")


def test_where_no_process_starts_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **options: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr(subprocess, "Popen", start)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BlockingIOError):
        HelperProcess("any")
    assert len(os.listdir("/proc/self/fd")) == before
