"""The units that are installed, and the examples: systemd itself accepts them, and they say what FUSE needs."""

import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest
from command import INSTALLED

UNITS = Path(__file__).parent.parent.parent / "systemd"
SERVICE, USER_SERVICE = UNITS / "touchfs@.service", UNITS / "user" / "touchfs@.service"
MOUNT, AUTOMOUNT = (UNITS / "examples" / f"mnt-speech.{kind}" for kind in ("mount", "automount"))

# Each gives a service a mount namespace of its own: `exec_needs_mount_namespace` of systemd 252's execute.c, and
# systemd.exec(5) of later ones.
NAMESPACING = {
    *("BindPaths", "BindReadOnlyPaths", "ExecPaths", "InaccessiblePaths", "LogNamespace", "MountFlags", "NoExecPaths"),
    *("PrivateDevices", "PrivateIPC", "PrivateMounts", "PrivateTmp", "PrivateUsers", "ProcSubset", "ProtectHome"),
    *("ProtectControlGroups", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules", "ProtectProc"),
    *("ProtectKernelTunables", "ProtectSystem", "ReadOnlyPaths", "ReadWritePaths", "RootDirectory", "RootImage"),
    *("DynamicUser", "TemporaryFileSystem"),
}


def options(unit: Path, section: str) -> ConfigParser:
    parser = ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    return parser[section]


@pytest.mark.parametrize(
    "unit", [SERVICE, USER_SERVICE, MOUNT, AUTOMOUNT], ids=lambda unit: f"{unit.parent.name}-{unit.name}"
)
def test_systemd_accepts_it(unit, tmp_path, monkeypatch):
    # The one difference to what is installed: where the command is.
    for each in (unit, MOUNT):
        text = each.read_text().replace("/usr/bin/touchfs", str(INSTALLED))
        (tmp_path / each.name).write_text(text)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    manager = ["--user"] if unit == USER_SERVICE else []
    command = ["systemd-analyze", "verify", "--man=no", *manager, tmp_path / unit.name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # It loads what this machine has installed, too, and may complain about that.
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


@pytest.mark.parametrize("unit", [SERVICE, USER_SERVICE], ids=["system", "user"])
def test_no_option_hides_the_mount(unit):
    assert not NAMESPACING & options(unit, "Service").keys()


def test_no_option_of_a_user_takes_the_setuid_bit_from_fusermount3():
    """Options that are filters of system calls imply NoNewPrivileges= without CAP_SYS_ADMIN."""
    filters = ("NoNewPrivileges", "LockPersonality", "MemoryDeny", "Protect", "RestrictA", "RestrictF", "RestrictN")
    filters += ("RestrictR", "RestrictS", "SystemCall")
    assert not [name for name in options(USER_SERVICE, "Service") if name.startswith(filters)]


def test_the_watchdog_waits_longer_than_a_stuck_worker_is_waited_for():
    for unit in (SERVICE, USER_SERVICE):
        assert int(options(unit, "Service")["WatchdogSec"]) >= 30  # --stuck-seconds is 10


def test_names_of_mount_units_are_those_of_their_places():
    for unit, section in ((MOUNT, "Mount"), (AUTOMOUNT, "Automount")):
        where = options(unit, section)["Where"]
        escaped = ["systemd-escape", "--path", f"--suffix={section.lower()}", where]
        assert subprocess.run(escaped, capture_output=True, text=True, check=True).stdout.strip() == unit.name
    assert options(MOUNT, "Mount")["What"].startswith("/")
