"""Our programs understand what the Compose file says to them, and every file that it names is there."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay_agent.config import AgentSettings
from assay_agent.policy.file import read_policy
from assay_core.settings.declaration import ProgramSettings
from assay_core.settings.settling import settle
from assay_server.config import ServerSettings
from tests.support.command_lines import PROGRAMS, parse_command_line

DEPLOYED = Path(__file__).resolve().parents[2] / "deploy"
LAB: dict[str, Any] = yaml.safe_load((DEPLOYED / "compose.yaml").read_text())
SCRIPTS = sorted((DEPLOYED / "compose").glob("*.sh"))


def test_the_lab_has_the_parts_of_a_site() -> None:
    expected = {
        "prepare",
        "postgresql",
        "objects",
        "server-1",
        "server-2",
        "lab-server",
        "prometheus",
        "agent",
    }
    assert expected <= set(LAB["services"])


def test_a_program_that_dies_is_started_again() -> None:
    assert {LAB["services"][name].get("restart") for name in ("server-1", "server-2", "agent")} == {
        "on-failure"
    }


def test_the_programs_take_the_settings() -> None:
    models: dict[str, type[ProgramSettings]] = {"server.toml": ServerSettings, "agent.toml": AgentSettings}
    for name, model in models.items():
        flags = dict.fromkeys(setting.field for setting in model.declared())
        assert settle(model, flags, file=DEPLOYED / "compose" / name, environment={})
    assert read_policy(DEPLOYED / "compose" / "policy.toml")


def test_every_command_line_of_ours_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("server-1", "server-2"):
        parse_command_line(["assay-server", *LAB["services"][name]["command"]])
    seen = set()
    for text in [*(script.read_text() for script in SCRIPTS), LAB["services"]["agent"]["entrypoint"][-1]]:
        for found in re.finditer(rf"\b({'|'.join(PROGRAMS)}) ([a-z][^\n|;<>)]*)", uncommented(text)):
            given = [word.replace("$name", "virtual-1") for word in shlex.split(found[2])]
            if "$@" in given:
                at = given.index("$@")
                given[at : at + 1] = ["--role", "agent"]
            seen.add(parse_command_line([found[1], *given]))
    assert seen == {
        "assay-server init", "assay-server token", "assay-agent join", "assay-agent run",
        "assay lab login", "assay lab submit", "assay lab status", "assay report",
    }  # fmt: skip


def test_no_volumes_name_is_the_beginning_of_another() -> None:
    names = sorted(LAB["volumes"])
    assert [(one, other) for one, other in pairwise(names) if other.startswith(one)] == []


def test_nobody_waits_for_a_container_that_ends_to_run() -> None:
    ends = {"prepare", "invite", "campaign"}
    for name, service in LAB["services"].items():
        waits = service.get("depends_on", {})
        for other in ends & set(waits):
            assert waits[other] == {"condition": "service_completed_successfully"}, (name, other)


def test_the_servers_keep_their_records_in_the_object_store() -> None:
    settings = tomllib.loads((DEPLOYED / "compose" / "server.toml").read_text())
    assert settings["records"].startswith("s3://")
    assert settings["records_endpoint"].split("/")[-1].split(":")[0] in LAB["services"]
    mounts = {mount.split(":")[1]: mount for mount in LAB["services"]["server-1"]["volumes"]}
    assert str(Path(settings["records_credentials"]).parent) in mounts


def uncommented(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_shell_reads_the_scripts(script: Path) -> None:
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0


def test_volumes_files_and_services_that_are_named_are_there() -> None:
    used = set()
    for service in LAB["services"].values():
        for mount in service.get("volumes", []):
            place = mount.split(":")[0]
            if place.startswith("."):
                assert (DEPLOYED / place).exists(), place
            else:
                used.add(place)
        assert set(service.get("depends_on", ())) <= set(LAB["services"])
    assert used == set(LAB["volumes"])
    proxied = re.findall(
        r"^  server (\S+) (\S+):\d+", (DEPLOYED / "compose" / "haproxy.cfg").read_text(), re.M
    )
    assert {name for pair in proxied for name in pair} == {"server-1", "server-2"}


def test_nothing_secret_is_written_there() -> None:
    for name, service in LAB["services"].items():
        for key, value in (
            service["environment"] if isinstance(service.get("environment"), dict) else {}
        ).items():
            assert "PASSWORD" not in key or key.endswith("_FILE"), (name, key, value)
