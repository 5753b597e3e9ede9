"""An agent whose server admitted it, but whose answer was lost, joins again as itself."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_agent.cli.join import join_lab
from assay_agent.config import AgentSettings
from assay_agent.daemon.state import StateDirectory, credentials_folder
from assay_core.connecting import joining
from assay_core.identity.credentials import CredentialsFolder
from assay_core.identity.keys import key_pem
from assay_core.identity.roles import Role
from assay_sampling.errors import ServerUnreachableError
from assay_server.app import Server
from tests.support.identity.authorities import made_authority, made_credentials
from tests.support.identity.tls_lab import tls_server, token_of


def test_an_agent_whose_answer_was_lost_joins_with_the_same_key_after_a_requeue_too(
    make_server: Callable[..., Server], short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call reads the folder again, as the next try and the next process of a requeued job do."""
    lab, join, lost = tls_server(make_server, short_path), joining.join, [1, 2]

    def losing(*given: Any, **named: Any) -> Any:
        answer = join(*given, **named)
        if lost:
            lost.pop()
            raise ServerUnreachableError("server", "the answer was lost", "wait")
        return answer

    monkeypatch.setattr(joining, "join", losing)
    settings = AgentSettings(state_dir=short_path / "job", name="slurm-north-12", agent_id="ab" * 16)
    token = token_of(lab, Role.AGENT, uses=1)
    for _ in range(2):
        with pytest.raises(ServerUnreachableError):
            join_lab(settings, lab.joins[0], token)
    agent_id, credentials, joined = join_lab(settings, lab.joins[0], token)
    assert (agent_id, joined.name) == ("ab" * 16, "slurm-north-12")
    kept = credentials_folder(settings.state_dir)
    found = kept.read()
    assert found is not None and found.key_pem == credentials.key_pem
    assert [path.name for path in kept.folder.iterdir()] == ["credentials.json"]


def test_the_key_to_join_with_is_private_and_goes_with_the_identity(tmp_path: Path) -> None:
    folder = credentials_folder(tmp_path / "job")
    first = key_pem(folder.joining_key())
    (path,) = folder.folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key_pem(CredentialsFolder(folder.folder).joining_key()) == first
    path.chmod(0o640)
    second = key_pem(folder.joining_key())
    assert second != first and stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(second[:40])
    third = key_pem(folder.joining_key())
    assert third not in (first, second) and key_pem(folder.joining_key()) == third
    with StateDirectory(tmp_path / "job") as state:
        state.renew_identity()  # a copy of a folder has no key of its original
    assert not path.exists()
    folder.joining_key()
    folder.write(made_credentials(made_authority()))
    assert not path.exists() and folder.read() is not None
