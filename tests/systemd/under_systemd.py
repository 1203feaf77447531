"""The unit of the system under a real systemd: the first process of a PID namespace, with a /run of its own.

What it mounts is seen by nobody else, and all its processes end with it. It starts only where control groups can be
written, which not every container allows: so `make soak` runs this, and `make test` what needs no systemd.
"""

import re
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from command import INSTALLED
from waiting import wait_until

UNIT = Path(__file__).parent.parent.parent / "systemd" / "touchfs@.service"
SYSTEMD = "/usr/lib/systemd/systemd"
SPEECH = Path(__file__).parent.parent / "data" / "speech" / "speech.jsonl"

BOOT = f"""set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system
cp $1/*.service /run/systemd/system
exec env container=test {SYSTEMD} --system --unit=test.service --log-target=console --show-status=no
"""

# A unit that tests the other.
TEST = """[Unit]
DefaultDependencies=no
Wants=touchfs@speech.service
After=touchfs@speech.service
[Service]
Type=oneshot
TimeoutStartSec=100
ExecStart=/bin/bash {script}
StandardOutput=file:{output}
StandardError=file:{output}.errors
"""

SCRIPT = """unit=touchfs@speech.service
show() { systemctl show $unit --property=$1 --value; }
echo "state: $(show ActiveState), $(show StatusText)"
echo "entries: $(ls MNT)"
pid=$(show MainPID)
echo "hardened: $(sed -n 's/NoNewPrivs:\\t//p; s/Seccomp:\\t//p' /proc/$pid/status | xargs)"
sleep 5
echo "after the watchdog's time: $(show ActiveState), $(show NRestarts) restarts"
systemctl reload $unit
echo "reloaded: $?, $(show StatusText)"
kill -9 $pid
while [ "$(show NRestarts)$(show ActiveState)" != 1active ]; do sleep 0.1; done
echo "after a kill: $(ls MNT | head -1)"
systemctl stop $unit
echo "stopped: $(show ActiveState), $(show Result)"
findmnt MNT || echo "unmounted"
echo "end"
"""


@pytest.mark.soak
def test_the_service_starts_reloads_restarts_and_stops(as_root, tmp_path):
    point, output, script = tmp_path / "mnt", tmp_path / "output", tmp_path / "script"
    subprocess.run([INSTALLED, "pack", "touchnet", SPEECH, tmp_path / "shards"], check=True, capture_output=True)
    (tmp_path / "speech.env").write_text(
        f"SOURCE={tmp_path}/shards\nMOUNTPOINT={point}\n"
        f"OPTIONS=--workers 2 --stuck-seconds 1 --no-index-cache --state-dir {tmp_path}/state\n"
    )
    text = UNIT.read_text().replace("/usr/bin/touchfs", str(INSTALLED)).replace("/etc/touchfs/%i", f"{tmp_path}/%i")
    text = re.sub("^Wants=.*", "DefaultDependencies=no", text, flags=re.MULTILINE)  # there is no network.target
    text = re.sub("^WatchdogSec=.*", "WatchdogSec=3", text, flags=re.MULTILINE)
    units = tmp_path / "units"
    units.mkdir()
    (units / "touchfs@.service").write_text(text)
    (units / "test.service").write_text(TEST.format(script=script, output=output))
    script.write_text(SCRIPT.replace("MNT", str(point)))
    command = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount",
        "--mount-proc",
        "bash",
        "-c",
        BOOT,
        "boot",
        units,
    ]
    with open(tmp_path / "console", "wb") as console:
        system = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
        try:
            with suppress(AssertionError):  # what there is then says more
                wait_until(lambda: output.exists() and output.read_text().endswith("end\n"), 100)
        finally:
            system.kill()  # and so, by --kill-child, all of its processes
            system.wait()
    assert output.read_text().splitlines() == [
        f"state: active, {tmp_path}/shards is mounted at {point} (1 shard, 10 samples)",
        "entries: by-key",
        *["manifests", "merged", "segments", "shards", "slices"],
        "hardened: 1 2",
        "after the watchdog's time: active, 0 restarts",
        "reloaded: 0, serves generation 2 of the dataset",
        "after a kill: by-key",
        "stopped: inactive, success",
        "unmounted",
        "end",
    ], (tmp_path / "console").read_text()
