"""Bundles at several servers of one database and one place of records, and those of earlier releases."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assay_core.bundles.packing import pack_bundle
from assay_core.records.upload import Bundle
from assay_sampling.errors import InputError, StorageError
from assay_server.app import Server
from assay_server.campaigns.bundles.earlier import take_over_bundles
from assay_server.campaigns.bundles.stored import BundleStore
from assay_server.database.opening import AskedDatabase
from assay_server.keeping.check import check_state
from assay_server.limits import BundleLimits
from assay_server.record_place import asked_records
from assay_server.records import moving
from assay_server.records.moving import move_to_bucket, move_to_folder, move_to_shared_folder
from assay_server.records.opening import open_records
from assay_server.store.objects import bucket as buckets
from assay_server.store.objects.bucket import Bucket
from assay_server.store.protocols import KnownFiles, MetadataStore, RecordStore
from assay_server.store.records import LocalRecordStore
from assay_server.store.sqlite import SqliteStore
from tests.support.server.memory_metadata_store import MemoryMetadataStore
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
    return Site(tmp_path, MemoryMetadataStore(), RECORD_STORES[request.param](tmp_path))


@pytest.fixture
def folder_site(tmp_path: Path) -> Site:
    return Site(tmp_path, MemoryMetadataStore(), RECORD_STORES["shared folder"](tmp_path))


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

        def gone(*, alone: bool = False) -> object:
            raise StorageError("database", "it is away", "wait")

        patched.setattr(site.records, "keep_bundle", then_away)
        with pytest.raises(StorageError, match="away"):
            put(store, "ann", bundle, data)
    assert store.missing("ann", [bundle]) == (bundle.sha256,) and len(site.files()) == 1
    moved = site.records.sweep(KnownFiles([], [], [], [], lambda *_: False))
    assert moved is not None and site.files() == []


def earlier_bundle(state: Path, bundle: Bundle, data: bytes, holders: dict[str, int]) -> None:
    """As an earlier release kept it."""
    folder = state / "bundles"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{bundle.sha256}.tar.z").write_bytes(data)
    told = {"bytes": bundle.bytes, "files": bundle.files, "holders": holders}
    (folder / f"{bundle.sha256}.json").write_text(json.dumps(told))


def test_bundles_of_an_earlier_release_are_taken_over_wherever_records_are(
    site: Site, tmp_path: Path
) -> None:
    bundle, data = packed(tmp_path)
    earlier_bundle(tmp_path / "a", bundle, data, {"ann": site.now})
    earlier_bundle(tmp_path / "b", bundle, data, {"bob": site.now})  # each server had its own
    damaged = tmp_path / "a" / "bundles" / f"{'0' * 64}.json"
    for text in ("", "[]", '{"bytes": "x"}', '{"bytes": 1, "files": 1, "holders": []}', "[" * 100_000):
        damaged.write_text(text)
        take_over_bundles(site.metadata, site.records, [tmp_path / "a", tmp_path / "b", tmp_path / "a"])
        assert not damaged.exists()
    store = site.server("a")
    assert store.missing("ann", [bundle]) == store.missing("bob", [bundle]) == ()
    assert b"".join(store.pieces(bundle.sha256)) == data
    assert len(site.files()) == 1 and not list(tmp_path.glob("[ab]/bundles/*.*"))


class AtMoment:
    """Does something in between: before the given one of all calls that look at what others may change."""

    def __init__(self, number: int, act: Callable[[], None]) -> None:
        self.met, self._number, self._act = 0, number, act

    def install(self, patch: pytest.MonkeyPatch) -> None:
        calls = [(MemoryMetadataStore, "snapshot"), (MemoryMetadataStore, "transaction")]
        calls += [(LocalRecordStore, "has_bundle"), (LocalRecordStore, "keep_bundle")]
        calls += [(Path, name) for name in ("read_bytes", "stat", "exists", "unlink", "glob")]
        for owner, name in calls:
            patch.setattr(owner, name, self._after_it(getattr(owner, name)))

    def _after_it(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def meeting(*given: Any, **named: Any) -> Any:
            self.met += 1
            if self.met == self._number:
                self._act()
            return call(*given, **named)

        return meeting


def site_with_earlier_bundles(folder: Path, one: tuple[Bundle, bytes], other: tuple[Bundle, bytes]) -> Site:
    """Servers that keep records in a shared folder; both have one bundle of an earlier release, as it has."""
    site = Site(folder, MemoryMetadataStore(), RECORD_STORES["shared folder"](folder))
    earlier_bundle(Path(site.records.location("")).parent, *one, {"ann": 1})
    earlier_bundle(folder / "a", *one, {"bob": 2})
    earlier_bundle(folder / "b", *one, {"cid": 3})
    earlier_bundle(folder / "b", *other, {"cid": 4})
    return site


def test_two_servers_take_over_the_bundles_of_one_shared_folder_at_one_moment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At any moment of the first one's start, the second one takes over all that there is."""
    one, other = packed(tmp_path), packed(tmp_path, "exit 1\n")
    for moment in itertools.count():
        folder = tmp_path / str(moment)
        folder.mkdir()
        site = site_with_earlier_bundles(folder, one, other)
        shared = Path(site.records.location("")).parent
        second = AtMoment(
            moment, partial(take_over_bundles, site.metadata, site.records, [folder / "b", shared])
        )
        with pytest.MonkeyPatch.context() as patch:
            second.install(patch)
            take_over_bundles(site.metadata, site.records, [folder / "a", shared])
        if moment == 0:
            take_over_bundles(site.metadata, site.records, [folder / "b", shared])
        elif moment > second.met:
            assert moment > 20, "it was tried at few moments"
            return
        with site.metadata.snapshot() as read:
            holders = {kept.bundle: dict(kept.holders) for kept in read.bundles()}
        assert holders == {one[0]: {"ann": 1, "bob": 2, "cid": 3}, other[0]: {"cid": 4}}, moment
        store = site.server("c")
        for bundle, data in (one, other):
            assert b"".join(store.pieces(bundle.sha256)) == data, moment
        left = [path.name for name in ("a", "b") for path in (folder / name / "bundles").glob("*")]
        assert left == [] and len(site.files()) == 2, moment
        assert caplog.records == [], moment


def test_a_server_goes_on_with_the_bundles_of_an_earlier_release(
    make_server: Callable[..., Server], short_path: Path
) -> None:
    state, (bundle, data) = short_path / "state", packed(short_path)
    earlier_bundle(state, bundle, data, {"owner": 1 << 50})
    state.chmod(0o700)
    server = make_server()
    assert server.settings.state_dir == state
    assert [path.name for path in (state / "bundles").glob("*")] == [f"{bundle.sha256}.tar.z"]
    metadata = SqliteStore(state / "metadata.sqlite")
    with metadata.snapshot() as read:
        [kept] = read.bundles()
    metadata.close()
    assert (kept.bundle, kept.stored_bytes, dict(kept.holders)) == (bundle, len(data), {"owner": 1 << 50})
    assert check_state(state).findings == ()
    (state / "bundles" / kept.file).write_bytes(data[:-1])
    assert [(f.kind, f.subject) for f in check_state(state).findings] == [("changed", f"bundles/{kept.file}")]


@pytest.fixture
def one_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whoever opens a bucket gets one in this process."""
    from obstore.store import MemoryStore  # noqa: PLC0415

    kept = MemoryStore()
    for module in (buckets, moving, "assay_server.records.opening"):
        name = module if isinstance(module, str) else module.__name__
        monkeypatch.setattr(f"{name}.opened_bucket", lambda place: Bucket(kept, "the bucket"))
    yield


@pytest.mark.usefixtures("one_bucket")
def test_bundles_move_with_the_records_and_back(tmp_path: Path) -> None:
    state, one, other = tmp_path / "state", packed(tmp_path), packed(tmp_path, "exit 1\n")
    state.mkdir(mode=0o700)
    metadata = SqliteStore(state / "metadata.sqlite")
    put(BundleStore(state, metadata, LocalRecordStore(state)), "ann", *one)
    metadata.close()
    earlier_bundle(state, *other, {"ann": 1 << 50})  # a release that never started here
    asked = asked_records("s3://lab/one", "http://127.0.0.1:1")
    moved = move_to_bucket(state, asked, AskedDatabase(), lambda _what, _number: None)
    assert moved.bundles == 2 and not (state / "bundles").exists()

    def whole() -> None:
        metadata = SqliteStore(state / "metadata.sqlite")
        with ExitStack() as resources:
            records = open_records(state, asked_records(""), lambda: 0, resources)
            store = BundleStore(state, metadata, records)
            for bundle, data in (one, other):
                assert store.missing("ann", [bundle]) == () and b"".join(store.pieces(bundle.sha256)) == data
        metadata.close()

    whole()
    assert check_state(state).findings == ()
    assert move_to_folder(state, AskedDatabase(), lambda _what, _number: None).bundles == 2
    whole()
    assert len(list((state / "bundles").glob("*.tar.z"))) == 2


def test_bundles_of_an_earlier_release_move_to_a_shared_folder(tmp_path: Path) -> None:
    state, (bundle, data) = tmp_path / "state", packed(tmp_path)
    state.mkdir(mode=0o700)
    SqliteStore(state / "metadata.sqlite").close()
    earlier_bundle(state, bundle, data, {"ann": 1 << 50})  # its release kept it, and none started since
    asked = asked_records(str(tmp_path / "shared"))
    moved = move_to_shared_folder(state, asked, AskedDatabase(), lambda _what, _number: None)
    assert moved.bundles == 1 and check_state(state).findings == ()
    metadata = SqliteStore(state / "metadata.sqlite")
    store = BundleStore(state, metadata, LocalRecordStore(tmp_path / "shared", shared=True))
    assert store.missing("ann", [bundle]) == () and b"".join(store.pieces(bundle.sha256)) == data
    metadata.close()
