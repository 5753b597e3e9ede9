"""Bundles on the server: who may send, name and fetch them, how long they stay, and that they are whole."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assay_client.remote.archives import export_to, import_from
from assay_client.remote.bundles import submit_with_files
from assay_client.remote.connection import Connection
from assay_core.bundles.packing import pack_bundle
from assay_core.identity.roles import Role
from assay_core.records.attempt import Claim
from assay_core.records.campaign import BundleFolder, Submitted
from assay_core.records.lab import AuditAsked
from assay_core.records.machine import InstalledDevice, Slot
from assay_core.records.upload import Bundle, BundleChunk, BundlePart, BundlesMissing, BundleWanted
from assay_protos import bundle_pb2_grpc
from assay_sampling.errors import AssayError, CampaignError, InputError, StorageError
from assay_server.access.caller import OWNER_ID, Caller, called_by
from assay_server.app import Server
from assay_server.campaign_file.reading import read_campaign_file
from assay_server.campaigns.bundles import BundleStore
from assay_server.campaigns.submit import folders_named, sent_bundles
from assay_server.clock import wall_ms
from assay_server.limits import DEFAULT_LIMITS, BundleLimits
from assay_server.maintenance.backup import make_backup
from assay_server.maintenance.check import check_state
from assay_server.maintenance.restore import restore_backup
from assay_server.store.records import LocalRecordStore
from assay_server.store.sqlite import SqliteStore
from tests.support.server.cut_once import CutOnce
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import eventually

CAMPAIGN = """\
campaign: sent
gpus: [V100]
detailed: none
workloads: [{name: w, bundle: files, command: [./run.sh]}]
"""
GPU = Slot("GPU-1", ("nsight_systems",), device=InstalledDevice(0, "V100"), bundles=True)


def packed(folder: Path, content: str = "exit 0\n", name: str = "files") -> tuple[Bundle, bytes]:
    """A bundle of one script, with its compressed bytes."""
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "run.sh").write_text(content)
    target = folder / f"{name}.packed"
    target.unlink(missing_ok=True)
    return pack_bundle(folder / name, target), target.read_bytes()


def bundle_store(
    state: Path,
    limits: BundleLimits = DEFAULT_LIMITS.bundles,
    now_ms: Callable[[], int] = wall_ms,
) -> BundleStore:
    """The bundles of a server alone, as its next process finds them."""
    metadata = SqliteStore(state / "metadata.sqlite")
    return BundleStore(state, metadata, LocalRecordStore(state), limits, now_ms=now_ms)


def put(store: BundleStore, who: str, bundle: Bundle, data: bytes) -> None:
    with store.begin(who, bundle) as incoming:
        incoming.feed(data)
        incoming.finish()


def files(store_folder: Path) -> list[str]:
    """The files of bundles and parts, without what makes each name its own."""
    paths = (path for path in (store_folder / "bundles").rglob("*") if path.is_file())
    return sorted(re.sub("-[0-9a-f]{16}", "", path.name) for path in paths)


@pytest.fixture
def person(server: Server) -> Iterator[Connection]:
    with Connection(server.addresses[0]) as connection:
        yield connection


def submitted(connection: Connection, folder: Path) -> str:
    packed(folder)
    return submit_with_files(connection, CAMPAIGN, folder / "sent.yaml").campaign_id


def test_only_who_sent_a_bundle_may_name_it(tmp_path: Path) -> None:
    store = bundle_store(tmp_path)
    bundle, data = packed(tmp_path)
    assert store.missing("ann", [bundle]) == (bundle.sha256,)
    put(store, "ann", bundle, data)
    assert store.missing("ann", [bundle]) == ()
    # Bob knows the hash, and learns nothing by it: not even that the files are here.
    assert store.missing("bob", [bundle]) == (bundle.sha256,)
    named = folders_named(read_campaign_file(CAMPAIGN, "sent.yaml"), store)
    assert named == (BundleFolder("files", "w", 4),)
    with called_by(Caller("bob", "bob", Role.SUBMITTER)), pytest.raises(InputError, match="not sent it"):
        sent_bundles(named, {"files": bundle}, store, "sent.yaml")
    with called_by(Caller("ann", "ann", Role.SUBMITTER)):
        assert sent_bundles(named, {"files": bundle}, store, "sent.yaml") == {"files": bundle}
        with pytest.raises(InputError):
            sent_bundles(named, {"files": replace(bundle, bytes=bundle.bytes + 512)}, store, "sent.yaml")
        with pytest.raises(CampaignError, match="were not sent"):
            sent_bundles(named, {}, store, "sent.yaml")
    put(store, "bob", bundle, zlib.compress(zlib.decompress(data), 1))
    assert files(tmp_path) == [f"{bundle.sha256}.tar.z"]
    assert b"".join(store.pieces(bundle.sha256)) == data
    assert bundle_store(tmp_path).missing("bob", [bundle]) == ()


def test_a_bundle_stays_while_a_campaign_names_it_and_for_an_hour(tmp_path: Path) -> None:
    now = [10_000_000]
    store = bundle_store(tmp_path, now_ms=lambda: now[0])
    one, other = packed(tmp_path), packed(tmp_path, "exit 1\n", "other")
    for bundle, data in (one, other):
        put(store, "ann", bundle, data)
    now[0] += 3_599_000
    assert store.forget({}) == []
    assert store.missing("ann", [one[0]]) == ()  # asking keeps it for another hour
    now[0] += 2_000
    assert store.forget({}) == [other[0].sha256]
    now[0] += 10_000_000
    assert store.forget({one[0].sha256: frozenset({"bob"})}) == []
    assert store.missing("ann", [one[0]]) == (one[0].sha256,), "its claim is gone, the files of bob's are not"
    assert store.forget({}) == [one[0].sha256]
    assert files(tmp_path) == []


def test_what_does_not_come_whole_leaves_nothing(tmp_path: Path) -> None:
    store = bundle_store(tmp_path)
    bundle, data = packed(tmp_path)
    for broken in (data[:-9], data[:20] + bytes([data[20] ^ 1]) + data[21:], b"", data + b"x"):
        with pytest.raises(InputError):
            put(store, "ann", bundle, broken)
    assert files(tmp_path) == [] and store.missing("ann", [bundle]) == (bundle.sha256,)
    put(store, "ann", bundle, data)
    assert store.missing("ann", [bundle]) == ()


def test_a_bundle_whose_file_is_gone_is_missing_and_is_mended_by_whoever_sends_it(tmp_path: Path) -> None:
    store = bundle_store(tmp_path)
    bundle, data = packed(tmp_path)
    put(store, "ann", bundle, data)
    [path] = (tmp_path / "bundles").glob("*.tar.z")
    path.unlink()
    assert store.missing("ann", [bundle]) == (bundle.sha256,)
    with pytest.raises(StorageError):
        b"".join(store.pieces(bundle.sha256))
    put(store, "bob", bundle, data)
    assert store.missing("ann", [bundle]) == store.missing("bob", [bundle]) == ()
    assert b"".join(store.pieces(bundle.sha256)) == data


def broken(store: BundleStore, who: str, bundle: Bundle, data: bytes) -> tuple[BundlePart, ...]:
    """What is kept of a stream that breaks after these bytes."""
    with store.begin(who, bundle) as incoming:
        incoming.feed(data)
    return store.parts(who, [bundle])


def test_a_broken_stream_goes_on_for_its_sender_alone_and_is_checked_again(tmp_path: Path) -> None:
    store = bundle_store(tmp_path)
    bundle, data = packed(tmp_path)
    [part] = broken(store, "ann", bundle, data[:20])
    assert part == BundlePart(bundle.sha256, 20, hashlib.sha256(data[:20]).hexdigest())
    assert store.parts("bob", [bundle]) == () and store.missing("ann", [bundle]) == (bundle.sha256,)
    with pytest.raises(InputError, match="no such part"):
        store.begin("bob", bundle, 20)
    with store.begin("ann", bundle, 20) as incoming:
        with pytest.raises(InputError, match="no such part"):
            store.begin("ann", bundle, 20)  # one stream continues it
        incoming.feed(data[20:])
        incoming.finish()
    assert store.missing("ann", [bundle]) == () and store.parts("ann", [bundle]) == ()
    assert b"".join(store.pieces(bundle.sha256)) == data
    assert files(tmp_path) == [f"{bundle.sha256}.tar.z"]


def test_what_continues_a_part_wrongly_leaves_nothing(tmp_path: Path) -> None:
    store = bundle_store(tmp_path)
    bundle, data = packed(tmp_path)
    broken(store, "ann", bundle, data[:20])
    with pytest.raises(InputError), store.begin("ann", bundle, 20) as incoming:
        incoming.feed(data[21:])
        incoming.finish()
    assert files(tmp_path) == [] and store.parts("ann", [bundle]) == ()
    broken(store, "ann", bundle, data[:20])
    put(store, "ann", bundle, data)  # from its beginning
    assert store.parts("ann", [bundle]) == ()
    assert files(tmp_path) == [f"{bundle.sha256}.tar.z"]


def test_a_stream_that_ends_too_early_is_refused_and_goes_on(tmp_path: Path) -> None:
    store = bundle_store(tmp_path)
    bundle, data = packed(tmp_path)
    with pytest.raises(InputError, match="cut off"), store.begin("ann", bundle) as incoming:
        incoming.feed(data[:20])
        incoming.finish()  # what the server does when gRPC takes a cut connection for the end of the stream
    assert [part.bytes for part in store.parts("ann", [bundle])] == [20]
    with store.begin("ann", bundle, 20) as incoming:
        incoming.feed(data[20:])
        incoming.finish()
    assert store.missing("ann", [bundle]) == ()


def test_parts_are_few_count_as_their_sender_s_and_go_after_an_hour(tmp_path: Path) -> None:
    now = [10_000_000]
    made = [packed(tmp_path, f"exit {number}\n", f"files-{number}") for number in range(18)]
    store = bundle_store(tmp_path, now_ms=lambda: now[0])
    for bundle, data in made:
        broken(store, "ann", bundle, data[:20])
    kept = store.parts("ann", [bundle for bundle, _ in made])
    assert [part.sha256 for part in kept] == [bundle.sha256 for bundle, _ in made[2:]]
    assert len(files(tmp_path)) == 16
    now[0] += 3_601_000
    store.forget({})
    assert files(tmp_path) == [] and store.parts("ann", [bundle for bundle, _ in made]) == ()
    small = bundle_store(tmp_path, replace(BundleLimits(), bundle_identity_bytes=20))
    broken(small, "ann", made[0][0], made[0][1][:20])
    with pytest.raises(StorageError, match="no room"):
        small.begin("ann", made[1][0])
    put_by_bob = small.begin("bob", made[1][0])
    put_by_bob.close()


def test_an_upload_whose_connection_is_cut_goes_on_where_it_was(
    server: Server, person: Connection, tmp_path: Path
) -> None:
    packed(tmp_path)
    (tmp_path / "files" / "input").write_bytes(np.random.default_rng(1).bytes(6 << 20))
    target = tmp_path / "again"
    bundle, size = pack_bundle(tmp_path / "files", target), target.stat().st_size
    with (
        CutOnce(server.addresses[0], tmp_path / "wire", after_bytes=3 << 20) as wire,
        Connection(f"unix:{tmp_path / 'wire'}") as far,
        ThreadPoolExecutor(1) as thread,
    ):
        answer = thread.submit(submit_with_files, far, CAMPAIGN, tmp_path / "sent.yaml")
        folder, parts = server.settings.state_dir / "bundles" / "incoming", list[BundlePart]()

        def arrives() -> bool:
            return folder.is_dir() and any(path.stat().st_size > 1 << 20 for path in folder.iterdir())

        eventually(arrives, "some of the bundle has arrived")
        wire.cut()

        def broke() -> bool:
            parts[:] = person.missing_bundles((bundle,)).parts
            return bool(parts)

        eventually(broke, "what arrived before the cut is kept", seconds=60)
        wire.mended.set()
        assert answer.result(timeout=120).campaign_id == "sent-1"
    [part] = parts
    assert 0 < part.bytes < size
    assert wire.bytes_after_cut < size - part.bytes + (256 << 10), "only the rest was sent"
    assert person.missing_bundles((bundle,)) == BundlesMissing(())


def test_a_submission_whose_part_is_with_another_server_sends_all_of_it(
    person: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, data = packed(tmp_path)
    part = BundlePart(bundle.sha256, 20, hashlib.sha256(data[:20]).hexdigest())
    sent = []

    def send(chunks: Iterator[BundleChunk]) -> object:
        every = list(chunks)
        sent.append(every[0].offset)
        return send_bundle(iter(every))

    send_bundle, there = person.send_bundle, BundlesMissing((bundle.sha256,), (part,))
    monkeypatch.setattr(person, "missing_bundles", lambda _named: there)
    monkeypatch.setattr(person, "send_bundle", send)
    assert submit_with_files(person, CAMPAIGN, tmp_path / "sent.yaml").campaign_id == "sent-1"
    assert sent == [20, 0]


@pytest.mark.parametrize(
    "limit", ["bundle_identity_bytes", "bundle_total_bytes", "bundle_bytes", "bundle_entries"]
)
def test_quotas_and_bounds_are_kept(limit: str, tmp_path: Path) -> None:
    one, other = packed(tmp_path), packed(tmp_path, "exit 1\n", "other")
    most = {"bundle_identity_bytes": len(one[1]), "bundle_total_bytes": len(one[1]), "bundle_bytes": 2047}
    store = bundle_store(tmp_path, replace(BundleLimits(), **{limit: most.get(limit, 0)}))
    if limit not in ("bundle_bytes", "bundle_entries"):
        put(store, "ann", *one)
    who = "ann" if limit == "bundle_identity_bytes" else "bob"
    with pytest.raises((StorageError, InputError)):
        put(store, who, *other)
    if limit == "bundle_identity_bytes":
        put(store, "bob", *other)


def test_only_the_agent_with_the_lease_of_its_run_gets_a_bundle(
    server: Server, person: Connection, tmp_path: Path
) -> None:
    submitted(person, tmp_path)
    bundle, data = packed(tmp_path)
    with PlayingAgent(server.addresses[0]) as agent, PlayingAgent(server.addresses[0], "agent-2") as other:
        agent.register((replace(GPU, bundles=False),))
        other.register((replace(GPU, slot_id="GPU-2"),))
        assert agent.lease("GPU-1").work is None, "its policy does not enable bundles"
        work = other.lease("GPU-2").work
        assert work is not None and work.command is not None and work.command.bundle == bundle
        assert work.command.argv == ("./run.sh",) and work.command.working_directory == ""
        claim = Claim(work.key, "agent-2", "session-1", work.write_secret)
        stub = bundle_pb2_grpc.BundleServiceStub(agent.channel)

        def fetched(wanted: BundleWanted) -> bytes | str:
            try:
                return b"".join(chunk.data for chunk in stub.FetchBundle(wanted.to_proto(), timeout=20))
            except Exception as error:  # noqa: BLE001 - what gRPC raises
                return str(error.code().name)  # type: ignore[attr-defined]

        assert fetched(BundleWanted(claim, bundle.sha256)) == data
        for wrong in (
            BundleWanted(replace(claim, secret=b"x" * 32), bundle.sha256),
            BundleWanted(replace(claim, agent_id="agent-1"), bundle.sha256),
            BundleWanted(replace(claim, session_id="session-2"), bundle.sha256),
            BundleWanted(claim, "0" * 64),
        ):
            assert fetched(wrong) == "PERMISSION_DENIED"
        other.fail(work.key)
        assert fetched(BundleWanted(claim, bundle.sha256)) == "PERMISSION_DENIED"


def test_who_asks_is_told_the_folders_and_nothing_is_submitted(server: Server, person: Connection) -> None:
    told = person.submit(CAMPAIGN, "sent.yaml", "/home/ann", asks_for_folders=True)
    assert told == Submitted("", 0, (BundleFolder("files", "w", 4),))
    with pytest.raises(CampaignError, match="not sent") as caught:
        person.submit(CAMPAIGN, "sent.yaml", "/home/ann")
    assert caught.value.subject == "sent.yaml:4"
    assert person.campaigns().campaigns == ()
    # What changed nothing is not in the audit log; the refused submission is, soon after its answer.
    found: list[str] = []

    def listed() -> bool:
        entries = person.audit(AuditAsked()).entries
        found[:] = [each.outcome for each in entries if each.call == "Submit"]
        return bool(found)

    eventually(listed, "the entry of the refused submission")
    assert len(found) == 1 and found != ["done"]


def test_a_run_waits_for_an_agent_that_runs_bundles_and_says_so(
    server: Server, person: Connection, tmp_path: Path
) -> None:
    campaign_id = submitted(person, tmp_path)
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register((replace(GPU, bundles=False),))
        [waiting] = agent.status(campaign_id).waiting
    assert "bundles" in waiting.reason and "policy" in waiting.reason


@pytest.mark.parametrize(
    "chunks",
    [[], [BundleChunk(b"x")], "large", "two"],
    ids=["nothing", "no name", "too large a chunk", "two bundles"],
)  # fmt: skip
def test_a_stream_that_is_no_bundle_is_refused(chunks: object, person: Connection, tmp_path: Path) -> None:
    bundle, data = packed(tmp_path)
    made = {
        "large": [BundleChunk(b"", bundle), BundleChunk(bytes((1 << 20) + 1))],
        "two": [BundleChunk(data[:5], bundle), BundleChunk(data[5:], bundle)],
    }.get(str(chunks), chunks)
    with pytest.raises(AssayError):
        person.send_bundle(iter(made))  # type: ignore[call-overload]
    assert person.missing_bundles((bundle,)).missing == (bundle.sha256,)


def test_bundles_are_in_backups_archives_and_checks(
    make_server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BundleLimits, "bundle_unnamed_seconds", 0)
    server = make_server()
    with Connection(server.addresses[0]) as person:
        _kept_everywhere(server, person, tmp_path)


def _kept_everywhere(server: Server, person: Connection, tmp_path: Path) -> None:
    campaign_id = submitted(person, tmp_path)
    state = server.settings.state_dir
    bundle, data = packed(tmp_path)
    make_backup(state, tmp_path / "backup", without_authority=True)
    restore_backup(tmp_path / "backup", tmp_path / "restored")
    assert bundle_store(tmp_path / "restored").missing(OWNER_ID, [bundle]) == ()
    assert check_state(tmp_path / "restored").findings == ()
    [path] = (tmp_path / "restored" / "bundles").glob("*.tar.z")
    path.unlink()  # a hard link, which the server's own file shares
    path.write_bytes(data[:-3])
    assert [(f.kind, f.subject) for f in check_state(tmp_path / "restored").findings] == [
        ("changed", f"bundles/{path.name}")
    ]
    path.unlink()
    assert [f.kind for f in check_state(tmp_path / "restored").findings] == ["missing"]
    # An archive takes it along, and the campaign's deletion takes it away.
    with PlayingAgent(server.addresses[0]) as agent:
        agent.cancel(campaign_id)
    export_to(person, campaign_id, tmp_path / "sent.tar")
    person.delete(campaign_id, confirmed=True)
    assert files(state) == []
    import_from(person, tmp_path / "sent.tar")
    [path] = (state / "bundles").glob("*.tar.z")
    assert path.read_bytes() == data
    assert check_state(state).findings == ()
