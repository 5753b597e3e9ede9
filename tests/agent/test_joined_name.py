"""An agent that joined by a name works by it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from assay_agent.config import AgentSettings
from assay_agent.daemon.state import StateDirectory, agent_name, kept_agent_id
from assay_agent.main import app
from assay_core.connecting import joining

UNTIL = SimpleNamespace(not_after_ms=0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names by which agents asked to join."""
    names: list[str] = []

    def joined(address: str, token: str, *, name: str, **_: object) -> tuple[object, object]:
        names.append(name)
        credentials = SimpleNamespace(server=address, authority_fingerprint="f", identity=UNTIL)
        return credentials, SimpleNamespace(name=name)

    monkeypatch.setattr(joining, "join", joined)
    monkeypatch.setattr("assay_core.identity.credentials.CredentialsFolder.write", lambda *_: None)
    return names


def join(state: Path, *options: str) -> None:
    done = CliRunner().invoke(app, ["join", "lab:7171", "--token", "t", "--state", str(state), *options])
    assert done.exit_code == 0, done.output


def test_an_agent_keeps_the_name_that_it_joined_by(tmp_path: Path, asked: list[str]) -> None:
    settings = AgentSettings(state_dir=tmp_path / "a")
    assert agent_name(settings) == settings.name  # the host's
    join(tmp_path / "a", "--name", "box-7")
    kept = kept_agent_id(tmp_path / "a")
    assert agent_name(settings) == "box-7"
    join(tmp_path / "a")  # again, for a new certificate
    assert asked == ["box-7", "box-7"]
    assert kept_agent_id(tmp_path / "a") == kept
    assert agent_name(AgentSettings(state_dir=tmp_path / "a", name="other")) == "other"


def test_a_copy_with_a_new_identity_does_not_keep_the_name(tmp_path: Path, asked: list[str]) -> None:
    join(tmp_path / "a", "--name", "box-7")
    with StateDirectory(tmp_path / "a") as state:
        state.renew_identity()
    settings = AgentSettings(state_dir=tmp_path / "a")
    assert agent_name(settings) == settings.name


def test_a_folder_of_an_earlier_release_has_no_name(tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text('{"agent_id": "aa"}')
    settings = AgentSettings(state_dir=tmp_path)
    assert agent_name(settings) == settings.name
