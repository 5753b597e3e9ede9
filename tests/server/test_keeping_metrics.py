"""What metrics say of backups, of checks, and of the certificate that the server shows."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner

from assay_sampling.errors import AssayError
from assay_server.app import Server
from assay_server.cli.program import program
from assay_server.maintenance.backup_log import Done, Task, last_done, note_done
from tests.support.identity.tls_lab import tls_server
from tests.support.metrics import value
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import CAMPAIGN

TIME, FAULTS = "assay_server_kept_time_seconds", "assay_server_kept_faults"


def invoke(*words: str | Path) -> int:
    ended = CliRunner().invoke(program, [str(word) for word in words])
    return ended.exception.exit_code if isinstance(ended.exception, AssayError) else ended.exit_code


def test_backups_and_checks_are_told_with_what_they_found(server: Server, short_path: Path) -> None:
    registry, state = server.metrics.registry, server.settings.state_dir
    assert [value(registry, TIME, task=str(task)) for task in Task] == [0, 0], "never"
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        agent.submit(CAMPAIGN)
        agent.play(made_segments((30,), "detailed", counters=2))
    assert invoke("backup", short_path / "kept", "--state", state) == 0
    assert invoke("check", "--state", state) == 0
    for task in Task:
        noted = last_done(state, task)
        assert noted is not None
        assert value(registry, TIME, task=str(task)) == noted.ended_at_ms / 1000
        assert value(registry, FAULTS, task=str(task)) == 0
    (record,) = (state / "records").rglob("*.parquet")
    record.unlink()
    assert invoke("backup", short_path / "second", "--state", state) == 8
    assert invoke("check", "--state", state) == 8
    assert [value(registry, FAULTS, task=str(task)) for task in Task] == [1, 1]
    manifest = json.loads((short_path / "second" / "manifest.json").read_text())
    assert not {"last-backup.json", "last-check.json"} & {file["name"] for file in manifest["files"]}


def test_a_backup_that_failed_is_not_told(server: Server, short_path: Path) -> None:
    (short_path / "there").mkdir()
    assert invoke("backup", short_path / "there", "--state", server.settings.state_dir) != 0
    assert value(server.metrics.registry, TIME, task="backup") == 0


def test_a_note_that_cannot_be_written_or_read_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    note_done(tmp_path / "nowhere", Task.CHECK, Done(ended_at_ms=1, faults=0))
    assert "will not show this check" in caplog.text
    (tmp_path / "last-check.json").write_text('{"ended_at_ms": "soon"}')
    assert last_done(tmp_path, Task.CHECK) is None
    assert "when the last check was made cannot be read" in caplog.text


def test_the_authority_in_the_metrics_ends_with_the_certificate_that_a_handshake_shows(
    make_server: Callable[..., Server], short_path: Path
) -> None:
    lab = tls_server(make_server, short_path)
    host, port = lab.joins[0].rsplit(":", 1)
    shown = x509.load_pem_x509_certificate(ssl.get_server_certificate((host, int(port))).encode())
    registry = lab.metrics.registry
    expires = value(registry, "assay_certificate_expires_seconds", certificate="authority")
    assert expires == shown.not_valid_after_utc.timestamp()
    assert 0.9 < value(registry, "assay_certificate_left_ratio", certificate="authority") <= 1
