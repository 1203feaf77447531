"""Ask the fork server beside this file for a process, pass it our descriptors and signals, and end as it ends.

The server reads all else about us from /proc. It answers "script" where its fork would differ from a new process: then
we become one. This runs hundreds of times, so without `site`, and with modules that import next to nothing.
"""

import _signal
import _socket
import os
import sys

PLACE = os.path.dirname(os.path.realpath(sys.argv[0]))
KEPT = {_signal.SIGKILL, _signal.SIGSTOP, _signal.SIGCHLD, _signal.SIGTSTP, _signal.SIGCONT}


def main() -> None:
    process = 0
    early = []

    def forward(number: int, _: object) -> None:
        if not process:
            early.append(number)
            return
        try:  # noqa: SIM105
            os.kill(process, number)
        except ProcessLookupError:
            pass  # it has ended, which we are about to be told

    signals = [each for each in _signal.valid_signals() - KEPT if _signal.getsignal(each) != _signal.SIG_IGN]
    for number in signals:
        _signal.signal(number, forward)
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    opened = [each for each in map(int, os.listdir("/proc/self/fd")) if each != server.fileno() and is_open(each)]
    numbers = b"".join(number.to_bytes(4, sys.byteorder) for number in opened)
    message = len(sys.argv).to_bytes(4, sys.byteorder) + numbers
    server.connect(f"{PLACE}/socket")
    server.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
    answer = server.recv(64)
    if answer == b"script":
        for number in signals:
            _signal.signal(number, _signal.SIG_DFL)
        script = os.readlink(f"{PLACE}/script")
        with open("/proc/self/cmdline", "rb") as line:  # not all bytes survive each encoding
            arguments = line.read().split(b"\0")[:-1][-len(sys.argv) :]
        os.execv(script, [script, *arguments[1:]])
    process = int(answer)
    for number in early:
        forward(number, None)
    status = int(server.recv(64))
    if status >= 0:
        os._exit(status)
    if -status != _signal.SIGKILL:
        _signal.signal(-status, _signal.SIG_DFL)
    os.kill(os.getpid(), -status)


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False  # that of the directory, whose names we have just read
    return True


main()
