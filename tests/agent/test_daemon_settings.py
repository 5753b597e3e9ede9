"""Command line before environment before file before default; and what ``probe`` says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assay_agent import main
from assay_agent.cli import running
from assay_agent.config import AgentSettings
from assay_agent.daemon.agent import Agent
from assay_core.program_log import LogLevel
from assay_core.settings.settling import read_settings_file
from assay_sampling.errors import InputError


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The set-ups of agents that would have been started."""
    configs: list[Any] = []

    def take(agent: Agent, reload: Callable[[], None], on_stop: Callable[[], None]) -> None:
        configs.append(agent.settings)

    monkeypatch.setattr(running, "_run_until_signalled", take)
    monkeypatch.setattr(running, "set_up_log", lambda *_: None)
    return configs


def run(*arguments: str, **environment: str) -> Any:
    return CliRunner().invoke(main.app, ["run", *arguments], env=environment)


def test_the_command_line_comes_before_the_environment_before_the_file(
    tmp_path: Path, started: list[Any]
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(
        'name = "file"\ndrain = "1m"\nrecorded_slots = 3\nvirtual = ["V100", "RTX 2060:2"]\n'
        'log_level = "debug"\nserver = "unix:/tmp/file"\npolicy = "/tmp/policy.toml"\n'
        'longest_cooling = "7s"\n'
    )
    done = run(
        "--config", str(file), "--name", "flag",
        ASSAY_AGENT_NAME="environment", ASSAY_AGENT_RECORDED_SLOTS="2",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    [config] = started
    assert config.log_level is LogLevel.DEBUG
    assert (config.name, config.recorded_slots, config.drain_seconds) == ("flag", 2, 60)
    assert config.server == "unix:/tmp/file"
    assert [(g.kind, g.count) for g in config.virtual] == [("V100", 1), ("RTX 2060", 2)]
    assert config.policy_file == Path("/tmp/policy.toml")
    assert config.telemetry.longest_wait_seconds == 7
    assert config.minimum_free_bytes == 256 << 20, "the default"


def test_the_file_may_be_named_by_the_environment(tmp_path: Path, started: list[Any]) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('name = "file"\n')
    assert run(ASSAY_AGENT_CONFIG=str(file)).exit_code == 0
    assert started[0].name == "file"
    assert run(ASSAY_AGENT_CONFIG=str(file), ASSAY_AGENT_NAME="environment").exit_code == 0
    assert started[1].name == "environment"


@pytest.mark.parametrize(
    ("text", "field", "cause"),
    [
        ("recorded_slots = 2000", "recorded_slots", "less than or equal to 1024"),
        ('virtual = ["V1000"]', "virtual", "V1000"),
        ('agent_id = "GPU"', "agent_id", "should match pattern"),
        ('installed_gpus = "perhaps"', "installed_gpus", "valid boolean"),
    ],
)
def test_a_file_that_is_not_valid_is_refused_with_its_key(
    tmp_path: Path, text: str, field: str, cause: str
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)
    with pytest.raises(InputError) as raised:
        read_settings_file(AgentSettings, file)
    assert (raised.value.field, raised.value.path) == (field, str(file))
    assert cause in raised.value.cause


def test_the_file_to_start_from_is_valid(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "deploy" / "agent.toml").read_text()
    file = tmp_path / "agent.toml"
    file.write_text(text.replace("# minimum_free", "minimum_free"))
    assert read_settings_file(AgentSettings, file)["minimum_free_bytes"] == 10 << 30


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = run("--config", str(tmp_path / "none.toml"))
    assert isinstance(done.exception, InputError)


def probe(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(main.app, ["probe", "--json", *arguments])
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_probe_says_what_virtual_gpus_would_offer(tmp_path: Path) -> None:
    found = probe("--virtual", "V100:2", "--state", str(tmp_path / "not" / "there"))
    virtual = [gpu for gpu in found["gpus"] if gpu["synthetic"]]
    assert [gpu["name"] for gpu in virtual] == ["virtual V100"] * 2
    assert virtual[0]["levels"] == {"detailed": ["ncu"], "light": ["nsys"]}
    assert all(condition["offered"] for condition in virtual[0]["conditions"].values())
    assert found["state_free_bytes"] > 0
    assert not (tmp_path / "not").exists(), "it only reads"


def test_probe_names_tools_and_why_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ncu = tmp_path / "ncu"
    ncu.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then echo Version 2024.1.1.0; else echo "  --mps arg"; fi\n'
    )
    ncu.chmod(0o755)
    nsys = tmp_path / "nsys"
    nsys.write_text("#!/bin/sh\nexit 1\n")
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = probe()
    assert found["tools"]["ncu"] == {
        "usable": True, "version": "2024.1.1.0", "path": str(ncu), "problem": "",
    }  # fmt: skip
    assert found["tools"]["nsys"]["usable"] is False
    assert "does not answer as NVIDIA's tool does" in found["tools"]["nsys"]["problem"]
    assert bool(found["gpus"]) != bool(found["no_gpu_reason"])


def test_probe_says_it_in_words_and_tells_of_the_policy(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('version = 1\nusers = ["nobody-of-that-name"]\n')
    done = CliRunner().invoke(main.app, ["probe", "--virtual", "RTX 3070", "--policy", str(policy)])
    assert done.exit_code == 0
    assert "virtual RTX 3070 (virtual, synthetic, compute capability 8.6" in done.stdout
    assert f"policy   the policy file {policy} is in force: 0 command rules" in done.stdout
    assert "this agent runs as" in done.stdout
