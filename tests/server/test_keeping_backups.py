"""Backup and restore: one moment of a running server, checked file by file; no later token comes back."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay_sampling.errors import AssayError, InputError, ParameterError, StorageError
from assay_server.app import Server, ServerSettings
from assay_server.cli.program import program
from assay_server.identity.authority import read_authority
from assay_server.maintenance.backup import make_backup
from assay_server.maintenance.restore import restore_backup
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import REPORT, StandInExecutor, eventually

TWO_RUNS = """\
campaign: two
workloads:
  - {name: one, recordings: [{device: V100, light: 1.sqlite}]}
  - {name: two, recordings: [{device: V100, light: 2.sqlite}]}
"""
ONE_RUN = """\
campaign: one
workloads: [{name: training, recordings: [{device: V100, light: light.sqlite}]}]
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def server_on(state: Path, analysis: StandInExecutor, **options: int) -> Server:
    settings = ServerSettings(state_dir=state, listen=(f"unix:{state.parent}/r.sock",), **options)
    return Server(settings, make_executor=lambda: analysis)


@pytest.mark.parametrize("form", ["folder", "file.tar"])
def test_a_campaign_goes_on_from_a_backup_that_was_made_while_it_ran(
    make_server: Callable[..., Server], short_path: Path, analysis: StandInExecutor, form: str
) -> None:
    server = make_server()
    state, place, restored = short_path / "state", short_path / "kept" / form, short_path / "restored"
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        ended = agent.submit(ONE_RUN)
        agent.play(made_segments((10,)))
        eventually(lambda: agent.status(ended).state == "done", "the end of the campaign")
        open_ = agent.submit(TWO_RUNS)
        agent.play(made_segments((20,)))
        work = agent.work(wait_ms=5000)
        agent.upload(work.key, made_segments((40, 30))[:1])
        made = make_backup(state, place)
        assert made.manifest.faults == () and made.manifest.campaigns == 2
        assert made.linked == (5 if form == "folder" else 0)
        # After the backup: the attempt ends, another campaign comes and gets a lease.
        agent.upload(work.key, made_segments((40, 30))[1:])
        assert agent.finish(work.key, 2, 70).published
        later = agent.submit(ONE_RUN)
        newest = agent.work(wait_ms=5000).key
        before = contents(state / "records")
    server.stop()
    restore_backup(place, restored)
    assert all(not stat.S_IMODE(p.stat().st_mode) & 0o077 for p in (restored, *restored.rglob("*")))
    with server_on(restored, analysis) as again, PlayingAgent(again.addresses[0]) as agent:
        assert b"".join(chunk.data for chunk in agent.report(ended)) == REPORT
        assert [each.campaign_id for each in agent.listed().campaigns] == [ended, open_]
        assert agent.listed().set_aside == ()
        # The agent still holds the lease that the backup knows, and so its attempt goes on.
        agent.know(work.key, work.write_secret)
        assert agent.heartbeat([work.key]).drop == ()
        agent.upload(work.key, made_segments((40, 30))[1:])
        assert agent.finish(work.key, 2, 70).published
        eventually(lambda: agent.status(open_).state == "done", "the end of the campaign")
        assert agent.submit(ONE_RUN) == later, "its number is free again"
        assert agent.work(wait_ms=5000).key.token > newest.token
    assert contents(restored / "records") == before


def test_a_backup_with_a_flipped_bit_restores_nothing(server: Server, short_path: Path) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        agent.submit(ONE_RUN)
        agent.play(made_segments((10,)))
    make_backup(short_path / "state", short_path / "kept", link=False)
    for victim in sorted((short_path / "kept").rglob("*")):
        if victim.is_dir() or victim.name == "manifest.json":
            continue
        whole = victim.read_bytes()
        data = bytearray(whole)
        data[len(data) // 2] ^= 4
        victim.write_bytes(data)
        with pytest.raises(StorageError, match="has changed since the backup was made"):
            restore_backup(short_path / "kept", short_path / "restored")
        victim.write_bytes(whole)
    assert not [p.name for p in short_path.iterdir() if p.name.startswith("restored")]
    restore_backup(short_path / "kept", short_path / "restored")
    assert contents(short_path / "restored" / "records") == contents(short_path / "state" / "records")


def test_a_folder_in_use_or_in_the_way_is_refused_and_nothing_is_removed(
    make_server: Callable[..., Server], short_path: Path
) -> None:
    server = make_server()
    state, kept = short_path / "state", short_path / "kept"
    make_backup(state, kept)
    with pytest.raises(StorageError, match="another assay-server has it"):
        restore_backup(kept, state, replace=True)
    with pytest.raises(ParameterError, match="exists already"):
        make_backup(state, kept)
    server.stop()
    with pytest.raises(StorageError, match="there is a state folder already"):
        restore_backup(kept, state)
    (state / "of-a-person").write_text("kept")
    replaced = restore_backup(kept, state, replace=True).replaced
    assert replaced is not None and (replaced / "of-a-person").read_text() == "kept"
    assert not (state / "of-a-person").exists()
    make_server().stop()


@pytest.mark.parametrize("damage", ["no manifest", "another file", "cut tar", "newer", "outside"])
def test_what_is_not_a_backup_of_ours_is_refused(server: Server, short_path: Path, damage: str) -> None:
    kept = short_path / ("kept.tar" if damage == "cut tar" else "kept")
    make_backup(short_path / "state", kept)
    manifest = kept / "manifest.json"
    if damage == "no manifest":
        manifest.unlink()
    elif damage == "cut tar":
        kept.write_bytes(kept.read_bytes()[:5000])
    elif damage == "another file":
        manifest.write_text('{"format": "something else"}')
    else:
        document = json.loads(manifest.read_bytes())
        document["version"] += damage == "newer"
        if damage == "outside":
            document["files"][0]["name"] = "../outside"
        manifest.write_text(json.dumps(document))
    with pytest.raises(InputError):
        restore_backup(kept, short_path / "restored")
    assert not (short_path / "restored").exists() and not (short_path / "outside").exists()


def test_the_authority_s_key_is_in_a_backup_only_under_its_passphrase(short_path: Path) -> None:
    state, kept, words = short_path / "state", short_path / "kept", short_path / "words"
    run = CliRunner().invoke
    assert run(program, ["init", "--state", str(state)]).exit_code == 0
    with Server(ServerSettings(state_dir=state, listen=(f"unix:{short_path}/s",))):
        pass  # it has made the database
    authority = read_authority(state)
    assert authority is not None
    with pytest.raises(ParameterError, match="never backed up unencrypted"):
        make_backup(state, kept)
    words.write_text("correct horse battery\n")
    done = run(
        program, ["backup", str(kept), "--state", str(state), "--passphrase-file", str(words), "--json"]
    )
    assert done.exit_code == 0 and json.loads(done.stdout)["authority"] is True
    plain = (state / "authority" / "key.pem").read_bytes()
    body = b"".join(plain.splitlines()[1:-1])
    assert all(body not in data.replace(b"\n", b"") for data in contents(kept).values())
    with pytest.raises(ParameterError, match="not the passphrase"):
        restore_backup(kept, short_path / "restored", passphrase=b"another horse battery")
    with pytest.raises(ParameterError, match="--passphrase-file"):
        restore_backup(kept, short_path / "restored")
    restore_backup(kept, short_path / "restored", passphrase=b"correct horse battery")
    again = read_authority(short_path / "restored")
    assert again is not None and again.fingerprint == authority.fingerprint
    restore_backup(kept, short_path / "without", without_authority=True)
    assert read_authority(short_path / "without") is None


def test_a_record_that_is_gone_or_changed_is_named_and_the_rest_is_in_the_backup(
    server: Server, short_path: Path
) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        agent.submit(TWO_RUNS)
        agent.play(made_segments((10,)))
        agent.play(made_segments((20,)))
    first, second = sorted((short_path / "state" / "records").rglob("*.parquet"))
    second.unlink()
    first.write_bytes(first.read_bytes()[:-1] + b"!")
    done = CliRunner().invoke(
        program, ["backup", str(short_path / "kept"), "--state", str(short_path / "state"), "--json"]
    )
    assert isinstance(done.exception, AssayError) and done.exception.exit_code == 8
    faults = {fault["name"]: fault["cause"] for fault in json.loads(done.stdout)["faults"]}
    assert faults == {
        "records/two-1.0000/slice-00000.parquet": "it has changed since it was published",
        "records/two-1.0001/slice-00000.parquet": "it is missing",
    }
    restore_backup(short_path / "kept", short_path / "restored")
