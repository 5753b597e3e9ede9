"""An agent that joined by a name works by it."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from assay_agent.config import AgentSettings
from assay_agent.daemon.state import StateDirectory, agent_name, kept_agent_id
from assay_agent.main import app
from assay_core.connecting import joining
from assay_core.identity.join_token import JoinToken
from assay_server.identity.authority import Authority
from tests.support.identity.authorities import DAY, made_authority, made_credentials, now

HOUR = datetime.timedelta(hours=1)
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


def test_a_box_that_is_let_in_does_not_join_again(tmp_path: Path, asked: list[str]) -> None:
    state, lab, other = tmp_path / "a", made_authority("Lab"), made_authority("Other")
    join(state, "--name", "box-7")
    agent_id = kept_agent_id(state)
    assert agent_id is not None
    again = ("--if-needed", "--token", JoinToken.new(lab.der).text)

    def keep(authority: Authority, identity_id: str, validity: datetime.timedelta) -> None:
        made = made_credentials(authority, identity_id=identity_id, validity=validity, at=now() - HOUR)
        (state / "credentials").mkdir(exist_ok=True)
        document = {
            "version": 1, "server": made.server, "authority": made.authority.decode(),
            "certificate": made.certificate.decode(), "key": made.key_pem.decode(),
        }  # fmt: skip
        path = state / "credentials" / "credentials.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(document))

    keep(lab, agent_id, DAY)
    join(state, *again)
    assert asked == ["box-7"]
    for authority, identity_id, validity in (
        (lab, agent_id, HOUR),
        (other, agent_id, DAY),
        (lab, "f" * 32, DAY),
    ):
        asked.clear()
        keep(authority, identity_id, validity)  # expired, of another lab, of another agent
        join(state, *again)
        assert asked == ["box-7"]
