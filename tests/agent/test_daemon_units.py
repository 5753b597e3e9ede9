"""The systemd units and the examples beside them say what the programs understand."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay_agent.config import AgentSettings
from assay_agent.main import app as agent_app
from assay_agent.policy.file import read_policy
from assay_agent.policy.gate import Gate
from assay_core.records.work import CommandSource
from assay_core.settings.quantities import parse_span_seconds
from assay_core.settings.settling import read_settings_file
from assay_server.cli.program import program as server_program
from tests.support.agent.bubblewrap import BUBBLEWRAP, bubblewrap_here

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PROGRAMS = {
    "assay-agent.service": (agent_app, ["run", "--help"]),
    "assay-server.service": (server_program, ["--help"]),
}


def sections(unit: Path) -> dict[str, dict[str, list[str]]]:
    """Every assignment of a unit; fails on a line that is none."""
    found: dict[str, dict[str, list[str]]] = {}
    section = ""
    for line in unit.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if header := re.fullmatch(r"\[(\w+)\]", line):
            section = header[1]
            found[section] = {}
            continue
        assignment = re.fullmatch(r"([A-Z]\w*)=(.*)", line)
        assert assignment, f"{unit.name}: {line!r}"
        found[section].setdefault(assignment[1], []).append(assignment[2])
    return found


def service(unit: Path) -> dict[str, str]:
    return {name: values[-1] for name, values in sections(unit)["Service"].items()}


def test_both_programs_have_their_unit() -> None:
    assert [unit.name for unit in UNITS] == list(PROGRAMS)


# bubblewrap makes namespaces, and a /proc, which the kernel gives only to who sees all of the box's.
NAMESPACES = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}
OVER_PROC = ("ProtectHostname", "ProtectKernelLogs", "ProtectKernelTunables")
OF_PROC = ("ProtectProc", "ProcSubset")


def test_the_drop_in_for_bundles_allows_what_the_unit_forbids_and_nothing_else() -> None:
    unit, dropped = (
        service(UNITS[0]),
        sections(DEPLOY / "systemd/assay-agent.service.d/bundles.conf")["Service"],
    )
    assert dropped.keys() == {"RestrictNamespaces", "ProtectHostname", "ProtectKernelLogs"} <= unit.keys()
    # An empty value first: lists of a drop-in are added to those of the unit.
    assert dropped["RestrictNamespaces"][0] == ""
    assert set(dropped["RestrictNamespaces"][1].split()) == NAMESPACES
    whole = unit | {name: values[-1] for name, values in dropped.items()}
    assert all(whole.get(name, "no") == "no" for name in OVER_PROC)
    assert not any(name in whole for name in OF_PROC)
    assert "AF_NETLINK" in whole["RestrictAddressFamilies"], "bubblewrap raises the loopback interface"


def test_what_the_drop_in_takes_back_would_keep_bubblewrap_from_working(tmp_path: Path) -> None:
    """Shown by the mount that ProtectKernelLogs= makes."""
    bubblewrap_here()
    if os.geteuid():
        pytest.skip("only root can mount something over /proc")
    ask = f"from assay_agent.execution.confinement.means import find_means; print(find_means({BUBBLEWRAP!r}))"
    over = 'mount --bind /dev/null /proc/kmsg && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", over, "-", sys.executable, "-c", ask]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    assert "bubblewrap does not work here" in said and "bundles.conf" in said


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_options_of_a_unit_exist(unit: Path) -> None:
    app, question = PROGRAMS[unit.name]
    offered = CliRunner().invoke(app, question, env={"COLUMNS": "200", "TERM": "dumb"}).stdout
    words = shlex.split(service(unit)["ExecStart"])
    assert Path(words[0]).name == unit.stem
    options = [word for word in words if word.startswith("--")]
    assert options
    for option in options:
        assert re.search(rf"{option}\b", offered), option


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_program_that_dies_is_started_again_however_often(unit: Path) -> None:
    assert sections(unit)["Unit"]["StartLimitIntervalSec"] == ["0"]
    found = service(unit)
    assert found["Restart"] == "on-failure", "which a signal is, too"
    assert 1 <= int(found["RestartSec"]) <= 10
    # Only what a restart cannot mend: faults of use, a missing extra, and a policy that refuses.
    assert set(found["RestartPreventExitStatus"].split()) <= {"2", "3", "9", "10"}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_capped_hardened_and_restarted(unit: Path) -> None:
    found = service(unit)
    words = shlex.split(found["ExecStart"])
    state = words[words.index("--state") + 1]
    assert state == f"/var/lib/{found['StateDirectory']}"
    assert found["KillMode"] == "mixed", "only the main process is asked to end; it ends its run in order"
    assert (found["Restart"], found["OOMPolicy"]) == ("on-failure", "continue")
    for cap in ("MemoryMax", "MemoryHigh", "TasksMax", "LimitNOFILE"):
        assert found[cap]
    for hardening in ("NoNewPrivileges", "RestrictSUIDSGID", "LockPersonality", "ProtectKernelModules"):
        assert found[hardening] == "yes"
    assert found["ProtectSystem"] == "strict"
    assert found["CapabilityBoundingSet"] == ""
    assert found["User"] not in ("", "root")


def test_the_agent_reaches_its_gpus_and_their_devices_are_made_before_it_starts() -> None:
    found = sections(DEPLOY / "systemd" / "assay-agent.service")["Service"]
    # Before systemd 253 ProtectClock implies a DeviceAllow, and with one all other devices are closed.
    assert not {"ProtectClock", "PrivateDevices", "DeviceAllow", "DevicePolicy"} & set(found)
    # Under NoNewPrivileges CUDA's own setuid helper cannot: root does it, and a box without it starts too.
    assert found["ExecStartPre"] == ["-+/usr/bin/nvidia-modprobe -u -c=0"]


def test_the_agent_finds_the_tracer_where_the_page_has_it_built() -> None:
    (unit,) = (unit for unit in UNITS if unit.name == "assay-agent.service")
    (given,) = sections(unit)["Service"]["Environment"]
    page = (DEPLOY.parent / "docs" / "agent.md").read_text()
    assert given.startswith("ASSAY_TRACER_CACHE=/")
    assert f"{given} /opt/assay/bin/python -m assay_agent.tracer.build" in page
    assert f"sudo -u assay {given} /opt/assay/bin/assay-agent doctor" in page


def test_systemd_waits_longer_than_the_agent_drains() -> None:
    found = service(DEPLOY / "systemd" / "assay-agent.service")
    words = shlex.split(found["ExecStart"])
    assert int(found["TimeoutStopSec"]) >= parse_span_seconds(words[words.index("--drain") + 1], "") + 30
    assert "--policy" in words, "an agent that nobody tends has a policy"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze on this machine")
    # What is not here: the installed program, and its user.
    text = unit.read_text().replace("/opt/assay/bin", str(Path(sys.executable).parent))
    text = re.sub(r"^(User|Group)=.*$", r"\1=root", text, flags=re.MULTILINE)
    (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit.name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_examples_beside_the_units_are_valid(tmp_path: Path) -> None:
    # Joined agents know their server: a line in the example would send them to another one.
    assert read_settings_file(AgentSettings, DEPLOY / "agent.toml") == {"log_level": "info"}
    copy = tmp_path / "policy.toml"  # the checkout's folder may be open to others
    copy.write_bytes((DEPLOY / "policy.toml").read_bytes())
    policy = read_policy(copy)
    assert not Gate(policy, server_is_ours=True, user_id=0).decide(CommandSource(("/bin/sh",), {})).allowed
    everybody = policy.model_copy(update={"users": []})
    gate = Gate(everybody, server_is_ours=True, user_id=1000)
    assert gate.decide(CommandSource(("/srv/workloads/bin/matmul", "1024"), {}, "/srv/workloads")).allowed
    python = "/usr/bin/python3"
    assert gate.decide(CommandSource((python, "/srv/workloads/net.py", "--batch", "8"), {})).allowed
    assert not gate.decide(CommandSource((python, "-c", "import os"), {})).allowed
    assert not gate.decide(CommandSource((python, "/srv/workloads/../net.py"), {})).allowed
