"""Bundles: equal files give equal bytes; what is not exactly a bundle is refused before it is a file."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_core.bundles.form import END, BundleBounds, Entry, header
from assay_core.bundles.packing import pack_bundle
from assay_core.bundles.reading import BundleReader, Checked, Unpacked
from assay_core.records.upload import Bundle
from assay_sampling.errors import InputError

_LETTERS = st.characters(codec="utf-8", categories=("L", "N", "P", "S"), exclude_characters="/")
_PART = st.text(_LETTERS, min_size=1, max_size=12)
_TREES = st.dictionaries(
    st.lists(_PART.filter(lambda part: part not in (".", "..")), min_size=1, max_size=3).map(tuple),
    st.tuples(st.binary(max_size=1500), st.booleans()),
    min_size=1,
    max_size=6,
)


def made(folder: Path, files: dict[tuple[str, ...], tuple[bytes, bool]], *, backwards: bool = False) -> bool:
    """Write the files; False if a name would be a file and a folder."""
    for parts, (content, executable) in sorted(files.items(), reverse=backwards):
        path = folder.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except (FileExistsError, IsADirectoryError, NotADirectoryError):
            return False
        path.chmod(0o711 if executable else 0o600)
    return True


def unpacked(bundle: Bundle, data: bytes, folder: Path, step: int = 1 << 20) -> None:
    reader = BundleReader(bundle, Unpacked(folder))
    for start in range(0, len(data), step):
        reader.feed(data[start : start + step])
    reader.finish()


def read(
    data: bytes, bundle: Bundle | None = None, files: int = 1, bounds: BundleBounds | None = None
) -> None:
    """Read an archive that claims to be whatever it is."""
    said = bundle or Bundle(hashlib.sha256(data).hexdigest(), len(data), files)
    reader = BundleReader(said, Checked(), bounds or BundleBounds())
    reader.feed(zlib.compress(data))
    reader.finish()


def archive(*entries: tuple[Entry, bytes]) -> bytes:
    return b"".join(header(entry) + data + bytes(entry.padding) for entry, data in entries) + END


def of_tarfile(*members: tarfile.TarInfo) -> bytes:
    """An archive as Python's tarfile writes it, without the zeros that fill its last record."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
        end = tar.offset
    return buffer.getvalue()[:end] + END


@given(_TREES, st.integers(1, 4096))
@settings(max_examples=15, deadline=None)
def test_equal_files_give_equal_bundles_and_come_back_as_they_were(files, step) -> None:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        one, other = work / "one", work / "other"
        if not (made(one, files) and made(other, files, backwards=True)):
            return
        os.utime(next(other.rglob("*")), (1, 1))
        bundle = pack_bundle(one, work / "1")
        assert pack_bundle(other, work / "2") == bundle
        assert (work / "1").read_bytes() == (work / "2").read_bytes()
        assert bundle.files == len(files)
        unpacked(bundle, (work / "1").read_bytes(), work / "out", step)
        for parts, (content, executable) in files.items():
            path = work.joinpath("out", *parts)
            assert path.read_bytes() == content
            assert stat.S_IMODE(path.stat().st_mode) == (0o755 if executable else 0o644)


def test_an_archive_is_a_tar_file_that_others_can_list(tmp_path: Path) -> None:
    made(tmp_path / "w", {("a", "run.sh"): (b"#!/bin/sh\n", True), ("b",): (b"x", False)})
    bundle = pack_bundle(tmp_path / "w", tmp_path / "packed")
    data = zlib.decompress((tmp_path / "packed").read_bytes())
    assert hashlib.sha256(data).hexdigest() == bundle.sha256
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert [(m.name, m.mode, m.mtime, m.uid) for m in tar] == [
            ("a", 0o755, 0, 0), ("a/run.sh", 0o755, 0, 0), ("b", 0o644, 0, 0),
        ]  # fmt: skip


@pytest.mark.parametrize("kind", ["link", "pipe", "outside", "name", "empty", "long"])
def test_what_cannot_be_in_a_bundle_is_refused_with_its_name(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "w"
    folder.mkdir()
    name = {"name": "line\nbreak", "long": "x" * 150 + ".bin"}.get(kind, "it")
    if kind == "link":
        (folder / name).symlink_to("/etc/passwd")
    elif kind == "outside":
        (folder / name).symlink_to("..")
    elif kind == "pipe":
        os.mkfifo(folder / name)
    elif kind == "empty":
        (folder / name).mkdir()
    else:
        (folder / name).write_text("x")
    with pytest.raises(InputError) as refused:
        pack_bundle(folder, tmp_path / "packed")
    assert repr(name) in refused.value.subject or kind == "empty"


def test_too_much_is_refused_when_it_is_packed(tmp_path: Path) -> None:
    made(tmp_path / "w", {("a",): (bytes(5000), False), ("b",): (b"", False)})
    for bounds, said in (
        (BundleBounds(entries=1), "more than 1 files"),
        (BundleBounds(bytes=4000), "4,000 bytes"),
    ):
        with pytest.raises(InputError, match=said):
            pack_bundle(tmp_path / "w", tmp_path / "packed", bounds)


def _member(name: str, kind: bytes = tarfile.REGTYPE, **values: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode = kind, 0o644
    for key, value in values.items():
        setattr(info, key, value)
    return info


@pytest.mark.parametrize(
    "hostile",
    [
        _member("../out"), _member("/etc/cron.d/x"), _member("a/../../b"), _member("./a"), _member("a//b"),
        _member("a", tarfile.SYMTYPE, linkname="/etc"), _member("a", tarfile.LNKTYPE, linkname="b"),
        _member("a", tarfile.CHRTYPE, devmajor=1), _member("a", tarfile.BLKTYPE),
        _member("a", tarfile.FIFOTYPE),
        _member("a", mode=0o4755), _member("a", mode=0o666), _member("a", uid=1000), _member("a", mtime=5),
        _member("a", uname="root"), _member("a", tarfile.GNUTYPE_SPARSE), _member("a", tarfile.XHDTYPE),
        _member("missing/a"), _member("a\x1b[31m"),
    ],
)  # fmt: skip
def test_a_hostile_entry_is_refused(hostile: tarfile.TarInfo) -> None:
    with pytest.raises(InputError):
        read(of_tarfile(hostile))


def test_entries_out_of_order_twice_or_after_the_end_are_refused() -> None:
    a, b = (Entry((name,), False, 3) for name in "ab")
    read(archive((a, b"abc"), (b, b"abc")), files=2)
    for data in (
        archive((b, b"abc"), (a, b"abc")),
        archive((a, b"abc"), (a, b"xyz")),
        archive((a, b"abc")) + archive((b, b"abc")),
        header(a) + b"abc" + b"x" * a.padding + END,
    ):
        with pytest.raises(InputError):
            read(data, files=2)


def test_a_bomb_ends_at_the_size_that_was_said() -> None:
    entry = Entry(("a",), False, 1 << 30)
    packing, seen = zlib.compressobj(), 0
    reader = BundleReader(Bundle("0" * 64, 4096, 1), Checked())
    pieces = [packing.compress(header(entry))]
    pieces += [packing.compress(bytes(1 << 20)) for _ in range(64)]
    with pytest.raises(InputError, match="more than the 4,096 bytes"):
        for piece in pieces:
            seen += len(piece)
            reader.feed(piece)
        reader.feed(packing.flush())
    assert seen < 1 << 20


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_no_damaged_bundle_is_taken(data) -> None:
    good = archive((Entry(("a",), True), b""), (Entry(("d",), False, 700), b"y" * 700))
    packed, said = zlib.compress(good), Bundle(hashlib.sha256(good).hexdigest(), len(good), 2)
    if data.draw(st.booleans(), "cut"):
        damaged = packed[: data.draw(st.integers(0, len(packed) - 1))]
    else:
        place = data.draw(st.integers(0, len(good) - 1))
        broken = bytearray(good)
        broken[place] ^= 1 << data.draw(st.integers(0, 7))
        damaged = zlib.compress(bytes(broken))
    reader = BundleReader(said, Checked())
    with pytest.raises(InputError):
        reader.feed(damaged)
        reader.finish()


@pytest.mark.parametrize(
    "said",
    [
        Bundle("x", 2048, 1), Bundle("0" * 64, 1 << 40, 1), Bundle("0" * 64, 2048, 0),
        Bundle("A" * 64, 2048, 1),
    ],
)  # fmt: skip
def test_what_is_said_of_a_bundle_is_bounded_too(said: Bundle) -> None:
    with pytest.raises(InputError):
        BundleReader(said, Checked())
