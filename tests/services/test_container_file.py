"""What the Containerfile starts and sets exists, and nothing secret can get into a layer."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from assay_agent.config import AgentSettings
from assay_core.settings.declaration import ProgramSettings
from assay_core.settings.settling import settle
from assay_server.config import ServerSettings
from tests.support.command_lines import PROGRAMS, parse_command_line

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "deploy" / "Containerfile").read_text().replace("\\\n", "")
IGNORED = (ROOT / ".dockerignore").read_text().splitlines()
STAGES = {
    match[1]: match[2]
    for match in re.finditer(r"^FROM [^\n]* AS (\S+)\n(.*?)(?=^FROM |\Z)", TEXT, re.MULTILINE | re.DOTALL)
}
IMAGES = ("server", "agent", "client")
FILES: dict[str, type[ProgramSettings]] = {"server.toml": ServerSettings, "agent.toml": AgentSettings}


def words(stage: str, instruction: str) -> list[str]:
    """The exec form of an instruction; fails for the shell form, in which signals end at a shell."""
    [given] = re.findall(rf"^{instruction} (.*)$", STAGES[stage], re.MULTILINE) or ["[]"]
    found = json.loads(given)
    assert isinstance(found, list)
    return [str(word).removeprefix("/opt/assay/bin/") for word in found]


@pytest.mark.parametrize("stage", IMAGES)
def test_an_image_starts_a_program_of_ours_as_an_ordinary_user(stage: str) -> None:
    start = words(stage, "ENTRYPOINT")
    assert start[0] in PROGRAMS
    parse_command_line([*start, *words(stage, "CMD")])
    [user] = re.findall(r"^USER (\d+):\d+$", STAGES[stage], re.MULTILINE)
    assert int(user) > 10_000


def test_the_health_checks_ask_what_the_images_settings_serve() -> None:
    settings = {name: tomllib.loads((ROOT / "deploy" / "image" / name).read_text()) for name in FILES}
    [asked] = re.findall(r"^HEALTHCHECK .*CMD (\[.*\])$", STAGES["server"], re.MULTILINE)
    given = [word.removeprefix("/opt/assay/bin/") for word in json.loads(asked)]
    assert parse_command_line(given) == "assay-server health"
    assert given[-1:] == settings["server.toml"]["listen"]
    [asked] = re.findall(r"^HEALTHCHECK .*CMD (\[.*\])$", STAGES["agent"], re.MULTILINE)
    assert f"http://{settings['agent.toml']['metrics']}/" in json.loads(asked)[-1]


def test_the_programs_take_the_images_settings() -> None:
    for name, model in FILES.items():
        assert f"COPY deploy/image/{name} {model.default_file()}\n" in TEXT
        flags = dict.fromkeys(setting.field for setting in model.declared())
        assert settle(model, flags, file=ROOT / "deploy" / "image" / name, environment={})


def test_no_variable_overrides_a_file_that_somebody_mounts() -> None:
    lines = re.findall(r"^ENV (.*)$", TEXT, re.MULTILINE)
    names = {assignment.partition("=")[0] for line in lines for assignment in shlex.split(line)}
    assert names == {"PATH", "HOME", "PYTHONDONTWRITEBYTECODE"}


def test_extras_exist() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    given = re.findall(r"^ARG \w+_EXTRAS=(\S+)$", TEXT, re.MULTILINE)
    assert len(given) == len(IMAGES)
    assert {extra for each in given for extra in each.split(",")} <= set(known)


def test_only_what_git_keeps_and_wheels_get_into_a_build() -> None:
    assert IGNORED[1] == "*"  # everything is left out, but
    kept = {line[1:] for line in IGNORED if line.startswith("!")}
    tracked = subprocess.run(
        ["git", "ls-files", "--", *kept], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if tracked.returncode:
        pytest.skip("not a git checkout")
    there = {name for each in tracked.stdout.splitlines() for name in (each, *map(str, Path(each).parents))}
    assert kept - there == {"build/wheels"}
    assert not re.search(
        r"(?i)secret|token|password|passphrase", "".join(re.findall("^(?:ARG|ENV).*", TEXT, re.M))
    )


@pytest.mark.parametrize(
    "line", ["assay-server --stat x", "assay-server health --loud", "assay-agent run now"]
)
def test_a_command_line_that_does_not_exist_would_be_noticed(line: str) -> None:
    with pytest.raises(Exception, match=r"No such option|unexpected extra argument"):
        parse_command_line(line.split())
