"""Segments from outside: what is honest passes, what is not is refused within bounds, and never crashes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_agent.spool.segments import EncodedSegment, SegmentEncoder, Segmenter
from assay_sampling.errors import LaunchTableError
from assay_sampling.launches.checks import check_batch
from assay_sampling.launches.table import LONGEST_NAME_BYTES, NAMES_SCHEMA, LaunchBatch, Names, text_id
from assay_server.store import segments
from assay_server.store.segments import (
    LARGEST_UNPACKED_BYTES,
    check_named,
    decode_names,
    decode_segment,
    leading_metadata,
)
from tests.support.agent.fake_server import batches_of
from tests.support.server.made_segments import made_batch, made_schema, made_segments, packed, packed_names


def cause(names: bytes, data: bytes) -> str:
    with pytest.raises(LaunchTableError) as caught:
        decode_segment(names, data, "segment 0")
    assert caught.value.subject == "segment 0"
    return caught.value.cause


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


def unpacked(data: bytes) -> bytes:
    with pa.input_stream(pa.BufferReader(data), compression="zstd") as stream:
        return bytes(stream.read())


def test_an_honest_segment_comes_out_as_it_went_in() -> None:
    [segment] = made_segments((1000,), counters=3)
    content = decode_segment(segment.names, segment.data, "segment 0")
    assert content.launches == 1000
    assert content.metadata.level == "light"
    assert set(content.names.values()) == {f"kernel<{i}>(float*)" for i in range(3)}
    assert content.batches[0].column("launch").to_pylist() == list(range(1000))
    check_named(content, (), "segment 0")


def test_several_batches_make_one_segment() -> None:
    schema, names = made_schema(), Names()
    batches = [made_batch(schema, first, 10, names) for first in (0, 10, 20)]
    assert decode_segment(packed_names(names), packed(schema, batches), "s").launches == 30


def test_an_id_without_a_name_is_refused() -> None:
    [segment] = made_segments((10,))
    content = decode_segment(b"", segment.data, "segment 0")
    with pytest.raises(LaunchTableError, match="it uses the id 0x"):
        check_named(content, (), "segment 0")
    check_named(content, {text_id(f"kernel<{i}>(float*)") for i in range(3)}, "segment 0")


def test_a_bomb_is_stopped_at_the_cap() -> None:
    bomb = zstd(bytes(512 << 20))
    assert len(bomb) < 64 << 10
    tracemalloc.start()
    told = cause(b"", bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert told == f"it unpacks to more than {LARGEST_UNPACKED_BYTES:,} bytes"
    assert peak < 3 * LARGEST_UNPACKED_BYTES


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_bomb_inside_the_ipc_stream_is_never_opened(codec: str) -> None:
    schema, names = made_schema(), Names()
    bomb = packed(schema, [made_batch(schema, 0, 60_000, names)], ipc_compression=codec)
    assert cause(b"", bomb) == "the bodies of its IPC messages are compressed"


@pytest.mark.parametrize("keep", [0, 1, 3, 4, 10, 0.5, 0.9, -1])
def test_a_cut_frame_is_refused(keep: float) -> None:
    [segment] = made_segments((1000,))
    length = int(len(segment.data) * keep) if isinstance(keep, float) else int(keep)
    assert "damaged" in cause(b"", segment.data[:length])


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_cut_ipc_stream_is_refused(share: float) -> None:
    plain = unpacked(made_segments((1000,))[0].data)
    assert "damaged" in cause(b"", zstd(plain[: int(len(plain) * share)]))


def test_what_is_no_frame_or_no_stream_is_refused() -> None:
    assert "damaged" in cause(b"", b"garbage")
    assert "damaged" in cause(b"", zstd(b"garbage that is no Arrow stream"))
    assert "damaged" in cause(b"", zstd(bytes(4096)))


@pytest.mark.parametrize(
    "data", [b"", b"garbage", zstd(b"garbage"), zstd(bytes(4096)), zstd(bytes(512 << 20))]
)
def test_what_does_not_begin_with_a_schema_is_refused_within_bounds(data: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(LaunchTableError, match="it is damaged") as caught:
        leading_metadata(data, "segment 0")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.subject == "segment 0"
    assert peak < LARGEST_UNPACKED_BYTES


def test_the_largest_schema_is_read_at_the_beginning() -> None:
    [segment] = made_segments((3,), counters=10_000)
    assert leading_metadata(segment.data, "segment 0").level == "light"


def test_a_foreign_schema_is_refused() -> None:
    schema = pa.schema([("a", pa.int64())])
    foreign = packed(schema, [pa.record_batch([pa.array([1])], schema=schema)])
    assert cause(b"", foreign) == "its schema carries no 'assay' metadata, so it is not a launch table"
    reordered = made_schema()
    reordered = pa.schema([reordered.field(i) for i in (1, 0, *range(2, len(reordered)))], reordered.metadata)
    batch = (
        made_batch(made_schema(), 0, 3, Names())
        .select(reordered.names)
        .replace_schema_metadata(reordered.metadata)
    )
    assert "found the column" in cause(b"", packed(reordered, [batch]))


def test_a_dictionary_message_is_refused() -> None:
    column = pa.array(["a", "b", "a"]).dictionary_encode()
    schema = pa.schema([("a", column.type)])
    assert cause(b"", packed(schema, [pa.record_batch([column], schema=schema)])) == (
        "it has a dictionary in place of a record batch"
    )


def test_nulls_and_values_out_of_range_are_refused() -> None:
    schema = made_schema()
    batch = made_batch(schema, 0, 4, Names())
    position = schema.get_field_index("launch")

    def with_launches(values: list[int | None]) -> bytes:
        columns = list(batch.columns)
        columns[position] = pa.array(values, pa.int64())
        return packed(schema, [pa.RecordBatch.from_arrays(columns, schema=schema)])

    assert cause(b"", with_launches([0, None, 2, 3])) == "column 'launch' has nulls"
    assert cause(b"", with_launches([0, 1, -2, 3])) == "column 'launch' holds -2, which is below 0"


def test_names_that_lie_are_refused() -> None:
    [segment] = made_segments((10,))

    def table(identifiers: list[int | None], texts: list[str | None]) -> bytes:
        columns = [pa.array(identifiers, pa.uint64()), pa.array(texts, pa.large_string())]
        return packed(NAMES_SCHEMA, [pa.RecordBatch.from_arrays(columns, schema=NAMES_SCHEMA)])

    assert "is not the hash of the name 'mine'" in cause(table([5], ["mine"]), segment.data)
    assert cause(table([None], ["mine"]), segment.data) == "it has nulls"
    assert cause(segment.data, segment.data) == "its columns are not id and text"
    assert decode_names(table([text_id("mine")], ["mine"])) == {text_id("mine"): "mine"}


def test_a_name_beyond_all_reason_is_refused() -> None:
    def names(text: str) -> bytes:
        columns = [pa.array([text_id(text)], pa.uint64()), pa.array([text], pa.large_string())]
        return packed(NAMES_SCHEMA, [pa.RecordBatch.from_arrays(columns, schema=NAMES_SCHEMA)])

    longest = "k" * LONGEST_NAME_BYTES
    assert list(decode_names(names(longest)).values()) == [longest]
    with pytest.raises(LaunchTableError, match="has 1,048,577 bytes, and one may have 1,048,576"):
        decode_names(names(longest + "k"))


def test_names_that_are_no_text_are_refused() -> None:
    storage = pa.array([b"\xff\xfe"], pa.large_binary())
    text = pa.Array.from_buffers(pa.large_string(), 1, storage.buffers())
    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.uint64()), text], schema=NAMES_SCHEMA)
    [segment] = made_segments((10,))
    assert "damaged" in cause(packed(NAMES_SCHEMA, [batch]), segment.data)


_PLAIN = unpacked(made_segments((20,))[0].data)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(_PLAIN) - 1), st.integers(0, 255)), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(0, len(_PLAIN))),
)
def test_whatever_bytes_come_they_are_launches_or_a_clear_error(
    changes: list[tuple[int, int]], cut: int | None
) -> None:
    data = bytearray(_PLAIN)
    for position, value in changes:
        data[position] = value
    try:
        content = decode_segment(b"", zstd(bytes(data[:cut])), "segment 0")
    except LaunchTableError as error:
        assert error.subject == "segment 0"
    else:
        for batch in content.batches:
            check_batch(batch)


@given(
    text=st.binary(min_size=1, max_size=3000),
    at=st.integers(0, 20),
    byte=st.integers(0, 255),
    more=st.binary(max_size=30),
)
def test_a_frame_that_lies_about_its_size_is_read_as_a_stream_would_read_it(text, at, byte, more):
    """Unpacking at once, into a buffer of the size that the frame declares, finds nothing else."""
    frame = bytearray(pa.compress(text, codec="zstd", asbytes=True) + more)
    if at < len(frame):
        frame[at] = byte

    def outcome(unpack):
        try:
            return bytes(unpack(bytes(frame)))
        except (OSError, pa.ArrowException, LaunchTableError):
            return None

    at_once, streamed = outcome(segments.unpacked), outcome(segments.unpacked_as_stream)
    assert at_once == streamed


def sent_by_an_agent(batches: Sequence[LaunchBatch]) -> list[EncodedSegment]:
    schema = batches[0].records.schema
    segmenter, encoder = Segmenter(schema), SegmentEncoder(schema)
    contents = [content for batch in batches for content in segmenter.add(batch)]
    contents += [last] if (last := segmenter.flush()) else []
    return [encoder.encode(number, content) for number, content in enumerate(contents)]


@pytest.mark.parametrize("counters", [0, 40])
def test_what_agents_send_comes_out_as_it_went_in(counters: int) -> None:
    batches = batches_of(30_000, 7_000, counters=counters)
    found = []
    for segment in sent_by_an_agent(batches):
        content = decode_segment(bytes(segment.names), bytes(segment.launches), "s")
        assert leading_metadata(bytes(segment.launches), "s") == content.metadata
        found += [each.records for each in content.launch_batches()]
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches([each.records for each in batches]))
