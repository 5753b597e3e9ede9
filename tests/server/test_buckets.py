"""Records in a bucket: conditions, errors, the cache, two servers at once, and objects that changed."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import obstore
import pytest
from obstore.store import MemoryStore

from assay_core.records.attempt import AttemptKey
from assay_sampling.errors import ParameterError, StorageError
from assay_server.database.state_notes import noted_records
from assay_server.places import RecordsPlace, bucket_and_prefix, read_credentials, records_place
from assay_server.records.opening import bind_bucket, open_records
from assay_server.store.objects import bucket as buckets
from assay_server.store.objects import cache as caches
from assay_server.store.objects.bucket import Bucket, MissingObjectError, opened_bucket, probe_bucket
from assay_server.store.objects.cache import RecordCache
from assay_server.store.objects.store import ObjectRecordStore
from assay_server.store.records import LocalRecordStore
from tests.support.server.buckets import TinyS3
from tests.support.server.made_segments import made_segments, publish_in

KEY = AttemptKey("made-1.0000", 0, 1, 9)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-that-nobody-may-see")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-that-nobody-may-see")


@pytest.fixture
def tiny() -> Iterator[TinyS3]:
    with TinyS3() as server:
        yield server


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused requests are sent once more, and not for half a minute."""
    backoff = {"init_backoff": timedelta(seconds=0.01), "max_backoff": timedelta(seconds=0.02), "base": 2}
    monkeypatch.setattr(
        buckets, "_RETRY", {"max_retries": 1, "retry_timeout": timedelta(seconds=5), "backoff": backoff}
    )


def bucket_of(server: TinyS3, folder: Path) -> Bucket:
    return opened_bucket(RecordsPlace("s3://lab/one", server.endpoint, cache=folder))


def test_a_bucket_that_ignores_conditions_is_refused(tmp_path: Path) -> None:
    with (
        TinyS3(keeps_conditions=False) as gateway,
        pytest.raises(StorageError, match="ignores If-None-Match"),
    ):
        probe_bucket(bucket_of(gateway, tmp_path))
    assert gateway.objects == {}
    with TinyS3() as server:
        probe_bucket(bucket_of(server, tmp_path))
    assert server.objects == {}


def test_an_object_is_made_once_and_its_equal_will_do(tiny: TinyS3, tmp_path: Path) -> None:
    bucket, file = bucket_of(tiny, tmp_path), tmp_path / "large"
    for _ in range(2):
        bucket.put_new("a", b"content")
    with pytest.raises(StorageError, match="an object of another content has that name"):
        bucket.put_new("a", b"other")
    assert bucket.get("a") == b"content"
    file.write_bytes(bytes(9 << 20))  # so large that it is not read into memory
    for _ in range(2):
        bucket.put_file("b", file)
    file.write_bytes(b"\1" * (9 << 20))
    with pytest.raises(StorageError, match="an object of another content has that name"):
        bucket.put_file("b", file)
    assert tiny.objects["/lab/one/b"] == bytes(9 << 20)


def test_of_many_writers_of_one_name_one_wins(tiny: TinyS3, tmp_path: Path) -> None:
    bucket = bucket_of(tiny, tmp_path)

    def write(number: int) -> bool:
        try:
            bucket.put_new("race", b"%d" % number)
        except StorageError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        won = [number for number, wrote in enumerate(threads.map(write, range(16))) if wrote]
    assert [b"%d" % number for number in won] == [tiny.objects["/lab/one/race"]]


def test_a_server_that_cannot_serve_for_a_moment_is_asked_again(tiny: TinyS3, tmp_path: Path) -> None:
    tiny.refusal = (503, "SlowDown", 2)
    bucket_of(tiny, tmp_path).put_new("a", b"content")
    assert tiny.objects == {"/lab/one/a": b"content"}


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize(
    ("refusal", "cause", "remedy"),
    [
        ((503, "ServiceUnavailable"), "cannot serve now", "agents keep what they measure"),
        ((404, "NoSuchBucket"), "there is no such bucket", "make the bucket"),
        ((403, "AccessDenied"), "denies access", "read, write, list and remove"),
        ((403, "InvalidAccessKeyId"), "does not accept these credentials", "AWS_ACCESS_KEY_ID"),
        ((403, "RequestTimeTooSkewed"), "clock", "NTP"),
        ((507, "InsufficientStorage"), "is full", "free space"),
        ((400, "<script>"), "refused", "see its logs"),
    ],
)
def test_each_refusal_says_its_cause_and_remedy(
    tiny: TinyS3, tmp_path: Path, refusal: tuple[int, str], cause: str, remedy: str
) -> None:
    tiny.refusal = (*refusal, -1)
    bucket = bucket_of(tiny, tmp_path)
    for ask in (lambda: bucket.put_new("a", b"x"), lambda: bucket.get("a")):
        with pytest.raises(StorageError) as told:
            ask()
        assert cause in told.value.cause and remedy in told.value.remedy
        assert "nobody-may-see" not in str(told.value) and "script" not in str(told.value)


@pytest.mark.usefixtures("briefly")
def test_a_server_that_is_not_there_and_one_without_tls(tiny: TinyS3, tmp_path: Path) -> None:
    without_tls = RecordsPlace("s3://lab", tiny.endpoint.replace("http:", "https:"), cache=tmp_path)
    with pytest.raises(StorageError, match="TLS with the object store failed"):
        opened_bucket(without_tls).get("a")
    with TinyS3() as gone:
        pass
    with pytest.raises(StorageError, match="the object store does not answer"):
        bucket_of(gone, tmp_path).get("a")


def test_a_small_request_to_a_silent_bucket_is_sent_again_and_a_large_one_has_time(
    tiny: TinyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "_MOST_SILENCE_SECONDS", 0.3)
    monkeypatch.setattr(buckets, "_SMALL_BYTES", 1000)
    bucket = bucket_of(tiny, tmp_path)
    tiny.silent = 1
    bucket.put_new("a", b"x" * 1000)
    tiny.silent = 1
    assert bucket.get("a") == b"x" * 1000
    tiny.silent = 1
    bucket.replace("a", b"y")
    assert tiny.objects == {"/lab/one/a": b"y"} and tiny.requests == 3
    tiny.silent = 1
    with ThreadPoolExecutor(1) as one:
        large = one.submit(bucket.put_new, "b", b"x" * 1001)
        with pytest.raises(TimeoutError):
            large.result(1.5)
        tiny.ended.set()
        large.result(60)
    assert tiny.objects["/lab/one/b"] == b"x" * 1001


def test_a_silent_bucket_holds_a_removal_of_few_and_a_small_copy_no_longer_than_other_small_requests(
    tiny: TinyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "_MOST_SILENCE_SECONDS", 0.3)
    bucket = bucket_of(tiny, tmp_path)
    bucket.put_new("a", b"x")
    tiny.silent = 1
    bucket.copy("a", "b", 1)
    tiny.silent = 1
    bucket.remove(["a", *map(str, range(99))])
    assert tiny.objects == {"/lab/one/b": b"x"} and not tiny.silent
    tiny.silent = 1
    with ThreadPoolExecutor(1) as one:
        many = one.submit(bucket.remove, ["b", *map(str, range(100))])
        with pytest.raises(TimeoutError):
            many.result(1.5)
        tiny.ended.set()
        many.result(60)
    assert not tiny.objects


def test_a_prefix_belongs_to_one_state() -> None:
    bucket = Bucket(MemoryStore(), "the bucket")
    bind_bucket(bucket, 7)
    bind_bucket(bucket, 7)
    with pytest.raises(StorageError, match="the records of another state folder"):
        bind_bucket(bucket, 8)
    used = Bucket(MemoryStore(), "the bucket")
    used.put_new("records/made-1.0000/slice-00000.parquet", b"x")
    with pytest.raises(StorageError, match="the records of another state folder"):
        bind_bucket(used, 7)


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("s3://", "cannot be a bucket: 3 to 63"),
        ("s3://UPPER/x", "cannot be a bucket: 3 to 63"),
        ("s3://b/p", "'b' cannot be a bucket: 3 to 63"),
        ("s3://lab/../x", "'../x' cannot be a prefix"),
        ("s3://key:secret@lab/x", "does not name a bucket"),
        ("s3://lab/x?y=1", "does not name a bucket"),
    ],
)
def test_what_names_no_bucket_is_refused_with_the_part_that_is_wrong(url: str, cause: str) -> None:
    with pytest.raises(ParameterError, match=cause):
        bucket_and_prefix(url)


def test_keys_in_a_file_that_others_may_read_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("[default]\naws_access_key_id = one\nAWS_SECRET_ACCESS_KEY=two=\n")
    file.chmod(0o640)
    with pytest.raises(ParameterError, match="others may read"):
        read_credentials(file)
    file.chmod(0o600)
    assert read_credentials(file) == {"access_key_id": "one", "secret_access_key": "two="}
    file.write_text("nothing")
    with pytest.raises(ParameterError, match="lacks the keys"):
        read_credentials(file)


class Downloads:
    """A bucket that only gives objects, with the content of ``contents``, or as ``fetch`` writes it."""

    def __init__(self, fetch: Callable[[IO[bytes]], object] | None = None, **contents: bytes) -> None:
        self.fetch, self.contents = fetch, contents

    def download(self, name: str, file: IO[bytes]) -> None:
        if self.fetch is not None:
            self.fetch(file)
        elif name.endswith("none"):
            raise MissingObjectError(name, "there is no such object")
        else:
            file.write(self.contents.get("data", bytes(100)))


class TestCache:
    def cache(
        self, folder: Path, fetch: Callable[[IO[bytes]], object] | None = None, **contents: bytes
    ) -> RecordCache:
        place = RecordsPlace("s3://b", cache=folder / "cache", cache_bytes=250)
        return RecordCache(Downloads(fetch, **contents), place, used_every_seconds=0)  # type: ignore[arg-type]

    def read(self, cache: RecordCache, name: str, data: bytes = bytes(100)) -> Path:
        with cache.reading(name) as path:
            assert path.read_bytes() == data
        return path

    def test_what_was_used_longest_ago_goes_first(self, tmp_path: Path) -> None:
        cache = self.cache(tmp_path)
        first, second = self.read(cache, "a/1"), self.read(cache, "a/2")
        self.read(cache, "a/1")
        third = self.read(cache, "a/3")
        assert [path.exists() for path in (first, second, third)] == [True, False, True]

    def test_what_is_being_read_stays_also_for_another_process_of_the_folder(self, tmp_path: Path) -> None:
        cache, other = self.cache(tmp_path), self.cache(tmp_path)
        with cache.reading("a/1") as held:
            for number in range(2, 80):
                self.read(other, f"a/{number}")
            assert held.read_bytes() == bytes(100)
        for number in range(2, 80):
            self.read(other, f"b/{number}")
        assert not held.exists()
        assert sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*") if path.is_file()) <= 250

    def test_a_copy_that_changed_is_fetched_again_and_nothing_is_nothing(self, tmp_path: Path) -> None:
        cache = self.cache(tmp_path, data=b"right")
        name = f"a/slice-00000-1f-{hashlib.blake2b(b'right', digest_size=32).hexdigest()[:16]}.parquet"
        path = self.read(cache, name, b"right")
        path.write_bytes(b"wrong")
        with cache.reading(name):
            assert path.read_bytes() == b"right"
        with cache.reading("a/none") as missing:
            assert not missing.exists()

    def test_a_copy_that_the_disk_does_not_give_is_fetched_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = b"x" * 1000
        file = f"r/slice-00000-1f-{hashlib.blake2b(data, digest_size=32).hexdigest()[:16]}.parquet"
        objects = MemoryStore()
        obstore.put(objects, f"records/{file}", data)
        fetcher = RecordCache(Bucket(objects, "b"), RecordsPlace("s3://b", cache=tmp_path))
        with fetcher.reading(f"records/{file}") as path:
            # Open, so that no later file gets its inode.
            broken, real = path.open("rb"), caches.hash_of_file

        def read(path: Path) -> str:
            if path.samefile(f"/proc/self/fd/{broken.fileno()}"):
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            return real(path)

        monkeypatch.setattr(caches, "hash_of_file", read)
        with broken:
            for _ in range(2):
                with fetcher.reading(f"records/{file}") as path:
                    assert path.read_bytes() == data

    @pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
    def test_a_copy_that_the_disk_does_not_open_is_fetched_again(
        self, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = self.cache(tmp_path, data=b"right")
        path = self.read(cache, "a/1", b"right")
        broken, real = path.stat().st_ino, Path.open
        # Held, so that no later file gets its inode.
        with path.open("rb"):

            def opened(at: Path, *how: Any, **named: Any) -> object:
                if at == path and at.exists() and at.stat().st_ino == broken:
                    raise OSError(number, os.strerror(number), str(at))
                return real(at, *how, **named)

            monkeypatch.setattr(Path, "open", opened)
            with cache.reading("a/1") as found:
                assert found.stat().st_ino != broken and found.read_bytes() == b"right"

    def test_a_cache_whose_disk_opens_nothing_says_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        brought: list[int] = []

        def refuses(at: Path, *how: object) -> object:
            if at.exists():
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(at))
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(at))

        cache = self.cache(tmp_path, lambda file: brought.append(file.write(b"x")))
        monkeypatch.setattr(Path, "open", refuses)
        with pytest.raises(StorageError, match="EIO"), cache.reading("a/1"):
            pass
        assert brought == [1]

    def test_a_fetch_that_fails_leaves_nothing(self, tmp_path: Path) -> None:
        def fails(file: IO[bytes]) -> None:
            file.write(b"half")
            raise StorageError("bucket", "it is away")

        with pytest.raises(StorageError), self.cache(tmp_path, fails).reading("a/1"):
            pass
        assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []

    def test_many_threads_fetch_a_file_once(self, tmp_path: Path) -> None:
        fetched: list[int] = []
        together = threading.Barrier(8)
        cache = self.cache(tmp_path, lambda file: fetched.append(file.write(bytes(100))))

        def read(_number: int) -> int:
            together.wait()
            with cache.reading("a/1") as path:
                return path.stat().st_size

        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(read, range(8))) == [100] * 8
        assert fetched == [100]


def staged(store: object, key: AttemptKey) -> list:  # type: ignore[type-arg]
    found = []
    made = made_segments((10, 20))
    for each in made:
        found.append(each.record(key, found[-1].end_bytes if found else 0))
    store.stage([(r, s.names, s.data) for r, s in zip(found, made, strict=True)])  # type: ignore[attr-defined]
    return found


def two_stores(kind: str, folder: Path) -> list[LocalRecordStore | ObjectRecordStore]:
    if kind == "folder":
        return [LocalRecordStore(folder / "shared", shared=True) for _ in range(2)]
    objects = MemoryStore()
    return [
        ObjectRecordStore(Bucket(objects, "b"), RecordsPlace("s3://b", cache=folder / str(number)))
        for number in range(2)
    ]


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_two_servers_share_records(kind: str, tmp_path: Path) -> None:
    first, second = two_stores(kind, tmp_path)
    segments = staged(first, KEY)
    staged(second, KEY)  # an agent that was answered by nobody sends it to another server
    assert second.staged(segments[1]).launches
    with ThreadPoolExecutor(2) as threads:
        told = list(threads.map(lambda store: publish_in(store, KEY, segments), (first, second)))
    assert told[0] == told[1]
    later = AttemptKey(KEY.run_id, KEY.slice_index, 2, 10)
    other = publish_in(second, later, staged(second, later))
    assert other.content_hash == told[0].content_hash and other.file != told[0].file
    second.withdraw(other.file)  # the attempt that lost takes nothing from the other one
    with first.reading(told[0].file) as path:
        assert path.stat().st_size == told[0].file_bytes
    first.discard(KEY)
    assert second.sizes([told[0].file, other.file]) == {told[0].file: told[0].file_bytes}


def test_a_copy_that_this_disk_changed_is_fetched_again_and_a_changed_object_is_seen(tmp_path: Path) -> None:
    objects = MemoryStore()
    store = ObjectRecordStore(Bucket(objects, "b"), RecordsPlace("s3://b", cache=tmp_path))
    made = publish_in(store, KEY, staged(store, KEY))
    with store.reading(made.file) as path:
        right = path.read_bytes()
    path.write_bytes(b"bit rot")
    with store.reading(made.file) as path:
        assert path.read_bytes() == right
    obstore.put(objects, f"records/{made.file}", b"somebody wrote here")
    store.let_go(made.file)
    with store.reading(made.file) as path:
        assert path.read_bytes() == b"somebody wrote here"


def test_a_place_is_noted_and_another_one_refused(tmp_path: Path) -> None:
    state, shared = tmp_path / "state", tmp_path / "shared"
    state.mkdir()
    with ExitStack() as resources:
        open_records(state, records_place(str(shared)), lambda: 5, resources)
        again = open_records(state, records_place(""), lambda: 5, resources)
        assert again.location("x") == f"{shared}/records/x"
        found = noted_records(state)
        assert found is not None and (found.url, found.state) == (str(shared), 5)
        with pytest.raises(StorageError, match="move them"):
            open_records(state, records_place(str(tmp_path / "else")), lambda: 5, resources)
        other = tmp_path / "other"
        other.mkdir()
        with pytest.raises(StorageError, match="another state folder"):
            open_records(other, records_place(str(shared)), lambda: 6, resources)
        full = tmp_path / "full"
        LocalRecordStore(full).write_report("made-1", "json", b"{}")
        with pytest.raises(StorageError, match="its records are in the folder"):
            open_records(full, records_place(str(tmp_path / "new")), lambda: 5, resources)
    with pytest.raises(ParameterError, match="is neither"):
        records_place("somewhere")


def test_a_servers_note_of_a_bucket_has_no_key(tiny: TinyS3, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    tiny.objects["/lab/one/state.json"] = b'{"state": 5}'
    with ExitStack() as resources:
        open_records(state, records_place("s3://lab/one", tiny.endpoint), lambda: 5, resources)
    text = (state / "records.json").read_text()
    assert "nobody-may-see" not in text and os.environ["AWS_ACCESS_KEY_ID"] not in text


def test_a_gateway_that_lists_the_same_names_again_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    page = [{"path": f"records/{number:05d}"} for number in range(1000)]
    answers = [page, page, []]  # of a gateway that ignores where a listing should begin
    monkeypatch.setattr(obstore, "list", lambda *_arguments, **_options: iter([answers.pop(0)]))
    monkeypatch.setattr(buckets, "_LISTED_TOGETHER", len(page))
    monkeypatch.setattr(buckets, "_found_object", lambda each: each)
    with pytest.raises(StorageError, match="s3://lab/one: it lists the same names again"):
        list(Bucket(MemoryStore(), "s3://lab/one").listed("records"))


def test_a_cached_folder_that_cannot_be_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = RecordCache(Bucket(MemoryStore(), "s3://lab/one"), RecordsPlace("s3://lab/one", cache=tmp_path))
    cache.forget_all("records/never")  # nothing there: nothing to remove
    (tmp_path / "files" / "records" / "a").mkdir(parents=True)

    def refused(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(caches.shutil, "rmtree", refused)
    with pytest.raises(StorageError, match="Input/output error"):
        cache.forget_all("records/a")
