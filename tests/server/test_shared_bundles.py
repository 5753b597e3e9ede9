"""Bundles in a shared place of records: kept by the server that leads, and by the one that takes over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from assay_core.bundles.packing import pack_bundle
from assay_core.records.upload import Bundle
from assay_sampling.errors import InputError, StorageError
from assay_server.campaigns.bundles import BundleStore
from assay_server.database.opening import AskedDatabase
from assay_server.limits import BundleLimits
from assay_server.maintenance.check import check_state
from assay_server.places import records_place
from assay_server.records.moving import move_to_folder, move_to_place
from assay_server.records.opening import open_records
from assay_server.store.objects import bucket as buckets
from assay_server.store.objects.bucket import Bucket
from assay_server.store.record_store import KnownFiles, RecordStore
from assay_server.store.records import LocalRecordStore
from assay_server.store.sql import MetadataStore
from assay_server.store.sqlite import SqliteStore
from tests.support.server.record_stores import RECORD_STORES, RecordBench

HOUR_MS = 3_600_000


@dataclass
class Site:
    """A database, a place of records, and servers on both; ``now`` is the time of the database."""

    folder: Path
    metadata: MetadataStore
    bench: RecordBench
    now: int = 10 * HOUR_MS

    @property
    def records(self) -> RecordStore:
        return self.bench.records

    def server(self, name: str, limits: BundleLimits | None = None) -> BundleStore:
        """A server with a state folder of its own."""
        state, limits = self.folder / name, limits or BundleLimits()
        return BundleStore(state, self.metadata, self.records, limits, now_ms=lambda: self.now)

    def files(self) -> list[str]:
        return [name for name in self.bench.names() if name.startswith("bundles/")]


@pytest.fixture(params=[name for name in RECORD_STORES if name != "local disk"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return Site(tmp_path, SqliteStore(None), RECORD_STORES[request.param](tmp_path))


@pytest.fixture
def folder_site(tmp_path: Path) -> Site:
    return Site(tmp_path, SqliteStore(None), RECORD_STORES["shared folder"](tmp_path))


def packed(folder: Path, content: str = "exit 0\n") -> tuple[Bundle, bytes]:
    (folder / "files").mkdir(exist_ok=True)
    (folder / "files" / "run.sh").write_text(content)
    target = folder / "packed"
    target.unlink(missing_ok=True)
    return pack_bundle(folder / "files", target), target.read_bytes()


def put(store: BundleStore, who: str, bundle: Bundle, data: bytes) -> None:
    with store.begin(who, bundle) as incoming:
        incoming.feed(data)
        incoming.finish()


def test_any_server_takes_a_bundle_and_any_gives_it_out(site: Site, tmp_path: Path) -> None:
    a, b = site.server("a"), site.server("b")
    bundle, data = packed(tmp_path)
    put(a, "ann", bundle, data)
    assert b.missing("ann", [bundle]) == () and b.missing("bob", [bundle]) == (bundle.sha256,)
    b.require("ann", [bundle])
    assert b"".join(b.pieces(bundle.sha256)) == data and b.stored_bytes(bundle.sha256) == len(data)
    put(b, "bob", bundle, data)
    assert a.missing("bob", [bundle]) == () and len(site.files()) == 1
    # One of them sees to those that nobody needs, and all know it.
    site.now += HOUR_MS + 1
    assert b.missing("bob", [bundle]) == ()
    site.now += HOUR_MS - 1
    assert a.forget({}) == [] and b.missing("ann", [bundle]) == (bundle.sha256,)
    site.now += 2
    assert a.forget({}) == [bundle.sha256] and b.missing("bob", [bundle]) == (bundle.sha256,)
    assert site.files() == []
    with pytest.raises(StorageError, match="no such bundle"):
        next(b.pieces(bundle.sha256))


def test_an_upload_that_goes_on_at_another_server_begins_anew_and_its_answer_says_so(
    site: Site, tmp_path: Path
) -> None:
    a, b = site.server("a"), site.server("b")
    bundle, data = packed(tmp_path)
    with a.begin("ann", bundle) as incoming:
        incoming.feed(data[:20])
    [part] = a.parts("ann", [bundle])
    assert b.parts("ann", [bundle]) == (), "who asks here is told to send all of it"
    with pytest.raises(InputError, match="no such part") as caught:
        b.begin("ann", bundle, part.bytes)
    assert caught.value.remedy == "send it from its beginning"
    put(b, "ann", bundle, data)
    assert a.missing("ann", [bundle]) == ()
    with a.begin("ann", bundle, part.bytes) as incoming:  # the first one is not told, and may go on
        incoming.feed(data[20:])
        incoming.finish()
    assert len(site.files()) == 1 and a.parts("ann", [bundle]) == ()


@pytest.mark.parametrize("limit", ["bundle_identity_bytes", "bundle_total_bytes"])
def test_quotas_count_what_other_servers_took_also_while_it_was_on_its_way(
    limit: str, folder_site: Site, tmp_path: Path
) -> None:
    site = folder_site
    one, other = packed(tmp_path), packed(tmp_path, "exit 1\n")
    limits = replace(BundleLimits(), **{limit: max(len(one[1]), len(other[1]))})
    a, b = site.server("a", limits), site.server("b", limits)
    with a.begin("ann", one[0]) as first, b.begin("ann", other[0]) as second:
        first.feed(one[1])
        second.feed(other[1])
        first.finish()
        with pytest.raises(StorageError, match="no room"):
            second.finish()
    assert len(site.files()) == 1 and b.missing("ann", [one[0], other[0]]) == (other[0].sha256,)
    with pytest.raises(StorageError, match="no room"):
        b.begin("ann", other[0])


def test_of_many_servers_that_take_one_bundle_at_once_one_file_stays(
    folder_site: Site, tmp_path: Path
) -> None:
    site, (bundle, data) = folder_site, packed(tmp_path)
    together = threading.Barrier(4)

    def send(number: int) -> None:
        store = site.server(str(number))
        with store.begin(f"person {number}", bundle) as incoming:
            incoming.feed(data)
            together.wait(20)
            incoming.finish()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(send, range(4)))
    last = site.server("last")
    assert len(site.files()) == 1 and b"".join(last.pieces(bundle.sha256)) == data
    assert [last.missing(f"person {number}", [bundle]) for number in range(4)] == [()] * 4


def test_a_bundle_that_is_swept_at_one_server_while_another_takes_it_is_not_lost(
    folder_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under one name, the sweeper removed the file of the bundle that had just been acknowledged."""
    site, (bundle, data) = folder_site, packed(tmp_path)
    a, b = site.server("a"), site.server("b")
    put(a, "ann", bundle, data)
    site.now += HOUR_MS + 1
    remove = LocalRecordStore.remove_bundle

    def late(self: LocalRecordStore, file: str) -> None:
        """The sweeper has committed, and removes the file a moment later."""
        monkeypatch.setattr(LocalRecordStore, "remove_bundle", remove)
        put(b, "bob", bundle, data)
        remove(self, file)

    monkeypatch.setattr(LocalRecordStore, "remove_bundle", late)
    assert a.forget({}) == [bundle.sha256]
    assert a.missing("bob", [bundle]) == () and b"".join(a.pieces(bundle.sha256)) == data


def test_a_file_whose_commit_failed_stays_for_the_sweep(
    folder_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit may have been kept although its answer was lost."""
    site, (bundle, data) = folder_site, packed(tmp_path)
    store = site.server("a")
    with monkeypatch.context() as patched:
        kept = site.records.keep_bundle

        def then_away(file: str, source: Path) -> None:
            kept(file, source)
            patched.setattr(site.metadata, "transaction", gone)

        def gone() -> object:
            raise StorageError("database", "it is away", "wait")

        patched.setattr(site.records, "keep_bundle", then_away)
        with pytest.raises(StorageError, match="away"):
            put(store, "ann", bundle, data)
    assert store.missing("ann", [bundle]) == (bundle.sha256,) and len(site.files()) == 1
    moved = site.records.sweep(KnownFiles([], [], [], [], lambda *_: False))
    assert moved is not None and site.files() == []


def test_a_bundle_whose_file_has_changed_is_found_by_a_check(tmp_path: Path) -> None:
    state, (bundle, data) = tmp_path / "state", packed(tmp_path)
    state.mkdir(mode=0o700)
    put_on_disk(state, (bundle, data))
    assert check_state(state).findings == ()
    [path] = (state / "bundles").glob("*.tar.z")
    path.write_bytes(data[:-1])
    assert [(f.kind, f.subject) for f in check_state(state).findings] == [("changed", f"bundles/{path.name}")]


def put_on_disk(state: Path, *bundles: tuple[Bundle, bytes]) -> None:
    """Bundles of ann in a state folder."""
    metadata = SqliteStore(state / "metadata.sqlite")
    for each in bundles:
        put(BundleStore(state, metadata, LocalRecordStore(state)), "ann", *each)
    metadata.close()


@pytest.fixture
def one_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whoever opens a bucket gets one in this process."""
    from obstore.store import MemoryStore  # noqa: PLC0415

    kept = MemoryStore()
    for module in (buckets, "assay_server.records.opening"):
        name = module if isinstance(module, str) else module.__name__
        monkeypatch.setattr(f"{name}.opened_bucket", lambda place: Bucket(kept, "the bucket"))
    yield


@pytest.mark.usefixtures("one_bucket")
def test_bundles_move_with_the_records_and_back(tmp_path: Path) -> None:
    state, one, other = tmp_path / "state", packed(tmp_path), packed(tmp_path, "exit 1\n")
    state.mkdir(mode=0o700)
    put_on_disk(state, one, other)
    asked = records_place("s3://lab/one", "http://127.0.0.1:1")
    moved = move_to_place(state, asked, AskedDatabase(), lambda _what, _number: None)
    assert moved.bundles == 2 and not (state / "bundles").exists()

    def whole() -> None:
        metadata = SqliteStore(state / "metadata.sqlite")
        with ExitStack() as resources:
            records = open_records(state, records_place(""), lambda: 0, resources)
            store = BundleStore(state, metadata, records)
            for bundle, data in (one, other):
                assert store.missing("ann", [bundle]) == () and b"".join(store.pieces(bundle.sha256)) == data
        metadata.close()

    whole()
    assert check_state(state).findings == ()
    assert move_to_folder(state, AskedDatabase(), lambda _what, _number: None).bundles == 2
    whole()
    assert len(list((state / "bundles").glob("*.tar.z"))) == 2


def test_bundles_move_to_a_shared_folder(tmp_path: Path) -> None:
    state, (bundle, data) = tmp_path / "state", packed(tmp_path)
    state.mkdir(mode=0o700)
    put_on_disk(state, (bundle, data))
    asked = records_place(str(tmp_path / "shared"))
    moved = move_to_place(state, asked, AskedDatabase(), lambda _what, _number: None)
    assert moved.bundles == 1 and check_state(state).findings == ()
    metadata = SqliteStore(state / "metadata.sqlite")
    store = BundleStore(state, metadata, LocalRecordStore(tmp_path / "shared", shared=True))
    assert store.missing("ann", [bundle]) == () and b"".join(store.pieces(bundle.sha256)) == data
    metadata.close()
