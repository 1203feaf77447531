"""docs/examples/kubernetes.yaml is by the schema of Kubernetes, and only the container that mounts is privileged."""

from pathlib import Path

import kubernetes_validate
import yaml

from touchfs.cli.mount import command

POD = yaml.safe_load((Path(__file__).parent.parent.parent / "docs/examples/kubernetes.yaml").read_text())


def test_kubernetes_accepts_it():
    kubernetes_validate.validate(POD, "1.29", strict=True)


def test_the_sidecar_mounts_where_the_program_reads():
    (sidecar,), (program,) = POD["spec"]["initContainers"], POD["spec"]["containers"]
    assert sidecar["command"][:2] == ["touchfs", "mount"]
    point = command.make_context("mount", sidecar["command"][2:]).params["mountpoint"]
    assert program["command"][1].startswith(point)
    shown = {each["name"]: each.get("mountPropagation") for each in sidecar["volumeMounts"] + program["volumeMounts"]}
    assert shown["mounts"] == "HostToContainer"
    assert not program["securityContext"]["allowPrivilegeEscalation"]
    assert "privileged" not in program["securityContext"]
