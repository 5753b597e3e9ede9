"""Mutations of an input: of its bytes, of its words and lines, of the cells of its tables.

All are made by one random generator, so an input is known by its target, seed and number alone.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

NUMBERS = (
    "0", "-1", "1", "2", "-0", "127", "255", "65535", "65536", "2147483647", "2147483648", "4294967295",
    "4294967296", "9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551616",
    "100000000", "999999999", "9" * 23, "9" * 400, "9" * 5000, "-" + "9" * 23, "1e308", "1e309", "1e400",
    "-1e400", "1e-400", "1e999999999", "nan", "NaN", "inf", "Infinity", "-Infinity", "n/a", "", "0x10",
    "fffffffff", "1_000", "+5", "1.5", "1,234", "1,2,3", "\u0663", "null", "true", "[]", "{}", '"x"',
    "1:1:1:1:1:1",
)  # fmt: skip
WORDS = (
    "\\ud800", "\\udfff\\ud800", "\\u0000", "\0", '"', '""', "'", ",", "\\", "{", "}", "[", "]", ":",
    "\t", "\r", "\n", "\r\n", "#", "&a", "*a", "<<", "!!python/object:os.system", "|", ">", "- ", "?",
    "%", "=", "==ERROR== ", "==PROF== Profiling", "(1, 1, 1)", "\u00e9", "\u2028", "\ufeff", "x" * 70_000,
    "a" * 1000, "(" * 500, "[" * 3000, "{" * 3000, '{"a":' * 2000, "ASSAY_SYNTHETIC", "None",
    "../../etc/passwd", "/dev/zero",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, 0, -1, 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, -(2**63), 1.5, float("inf"), float("nan"), 1e300, "",
    "x", "a" * 5000, "\0", b"", b"\xff\xfe\x00", b"\xed\xa0\x80", "\ud7ff",
)  # fmt: skip
_TOKEN = re.compile(rb"-?\d[\w.+-]*|[A-Za-z_][\w]*|[^\s\w]")
_NUMBER = re.compile(rb"-?\d[\d.eE+-]*")
_MOST_BYTES = 400_000


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """One to eight changes of bytes."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        random.choice(_BYTE_CHANGES)(changed, random)
    return bytes(changed[:_MOST_BYTES])


def _at(data: bytearray, random: Random) -> int:
    # What says how large the rest is stands at the front and, in a footer, at the end.
    near = min(len(data), 400)
    place = random.random()
    if place < 0.3:
        return random.randrange(near + 1)
    if place < 0.6:
        return len(data) - random.randrange(near + 1)
    return random.randrange(len(data) + 1)


def _flip(data: bytearray, random: Random) -> None:
    if data:
        data[min(_at(data, random), len(data) - 1)] ^= 1 << random.randrange(8)


def _overwrite(data: bytearray, random: Random) -> None:
    at = _at(data, random)
    data[at : at + 1] = bytes([random.choice((0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x0A, random.randrange(256)))])


def _whole_number(data: bytearray, random: Random) -> None:
    size = random.choice((2, 4, 8))
    value = random.choice((0, 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1))
    order = random.choice(("little", "big"))
    at = _at(data, random)
    data[at : at + size] = (value % (1 << (8 * size))).to_bytes(size, order)


def _varint(data: bytearray, random: Random) -> None:
    at = _at(data, random)
    data[at : at + 1] = b"\xff" * random.randrange(1, 11) + b"\x7f"


def _cut(data: bytearray, random: Random) -> None:
    del data[_at(data, random) :]


def _remove(data: bytearray, random: Random) -> None:
    at = _at(data, random)
    del data[at : at + random.choice((1, 2, 4, 8, 64, 1024))]


def _repeat(data: bytearray, random: Random) -> None:
    at = _at(data, random)
    part = data[at : at + random.choice((1, 8, 64, 1024))]
    data[at:at] = part * random.choice((1, 2, 16, 200))


def _insert(data: bytearray, random: Random) -> None:
    at = _at(data, random)
    data[at:at] = random.randbytes(random.choice((1, 4, 16)))


_BYTE_CHANGES: tuple[Callable[[bytearray, Random], None], ...] = (
    _flip, _flip, _overwrite, _whole_number, _whole_number, _varint, _cut, _remove, _repeat, _insert,
)  # fmt: skip


def mutate_text(data: bytes, random: Random) -> bytes:
    """One to five changes of numbers, words and lines; now and then of bytes too.

    Most changes end in the same few refusals; one other number alone comes further.
    """
    if random.random() < 0.4:
        return _replace(data, random, _NUMBER, NUMBERS)
    for _ in range(random.choice((1, 1, 2, 3, 5))):
        data = random.choice(_TEXT_CHANGES)(data, random)[:_MOST_BYTES]
    return mutate_bytes(data, random) if random.random() < 0.1 else data


def _replace(data: bytes, random: Random, pattern: re.Pattern[bytes], texts: Sequence[str]) -> bytes:
    places = [match.span() for match in pattern.finditer(data)]
    if not places:
        return data
    start, end = random.choice(places)
    return data[:start] + random.choice(texts).encode() + data[end:]


def _number(data: bytes, random: Random) -> bytes:
    return _replace(data, random, _NUMBER, NUMBERS)


def _word(data: bytes, random: Random) -> bytes:
    return _replace(data, random, _TOKEN, WORDS if random.random() < 0.6 else NUMBERS)


def _between(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.choice(WORDS).encode() + data[at:]


def _swap(data: bytes, random: Random) -> bytes:
    places = [match.span() for match in _TOKEN.finditer(data)]
    if len(places) < 2:
        return data
    (a, b), (c, d) = sorted(random.sample(places, 2))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def _lines(data: bytes, random: Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    at = random.randrange(len(lines))
    change = random.randrange(4)
    if change == 0:
        del lines[at]
    elif change == 1:
        lines[at:at] = [lines[at]] * random.choice((1, 2, 50, 2000))
    elif change == 2:
        other = random.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at] = lines[at][: random.randrange(len(lines[at]) + 1)]
    return b"".join(lines)


_TEXT_CHANGES = (_number, _number, _number, _word, _word, _between, _swap, _lines, _lines)


def mutate_sqlite(data: bytes, random: Random) -> bytes:
    """Cells, columns and tables of a database; half of the time its bytes."""
    if random.random() < 0.5:
        return mutate_bytes(data, random)
    with tempfile.TemporaryDirectory(prefix="assay-fuzz-") as folder:
        path = Path(folder) / "x.sqlite"
        path.write_bytes(data)
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA synchronous=OFF")
            for _ in range(random.choice((1, 1, 2, 4))):
                with suppress(sqlite3.Error):
                    _change_database(database, random)
            database.commit()
        return path.read_bytes()


def _change_database(database: sqlite3.Connection, random: Random) -> None:
    tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    if not tables:
        return
    table = random.choice(tables)
    columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
    column, change = random.choice(columns), random.random()
    if change < 0.6:
        value = random.choice((*_VALUES, random.choice(WORDS), random.choice(NUMBERS)))
        rows = (
            "" if random.random() < 0.2 else "WHERE rowid = (SELECT rowid FROM t ORDER BY random() LIMIT 1)"
        )
        rows = rows.replace("FROM t", f'FROM "{table}"').replace(
            "random()", f"rowid * {random.randrange(1, 99)} % 97"
        )
        database.execute(f'UPDATE "{table}" SET "{column}" = ? {rows}', (value,))
    elif change < 0.7:
        database.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    elif change < 0.8:
        database.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{random.choice(columns)}x"')
    elif change < 0.85:
        database.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}"')
    elif change < 0.9:
        listed = ", ".join(f'"{name}"' for name in columns if name != column)
        made = random.choice(
            ("hex(zeroblob(900000000))", "randomblob(90000000)", "printf('%.*c', 90000000, 'x')")
        )
        database.execute(f'ALTER TABLE "{table}" RENAME TO old')
        database.execute(f'CREATE TABLE "{table}" ({listed}{", " if listed else ""}"{column}" AS ({made}))')
        if listed:
            database.execute(f'INSERT INTO "{table}" ({listed}) SELECT {listed} FROM old')
    elif change < 0.95:
        database.execute(f'DROP TABLE "{table}"')
    else:
        database.execute(f'DELETE FROM "{table}"')


def mutate_parquet(data: bytes, random: Random) -> bytes:
    """Columns, types and metadata of a table; half of the time the bytes of the file."""
    if random.random() < 0.5:
        return mutate_bytes(data, random)
    table = pq.read_table(io.BytesIO(data))
    footer = pq.read_metadata(io.BytesIO(data)).metadata or {}
    for _ in range(random.choice((1, 1, 2))):
        with suppress(pa.ArrowException, ValueError, OverflowError, TypeError, IndexError):
            table = _change_table(table, random)
    metadata = {key: _changed_text(value, random) for key, value in (table.schema.metadata or {}).items()}
    sink = io.BytesIO()
    with suppress(pa.ArrowException, OSError, ValueError):
        with pq.ParquetWriter(sink, table.schema.with_metadata(metadata)) as writer:
            writer.write_table(table.cast(table.schema.with_metadata(metadata)))
            writer.add_key_value_metadata(
                {key: _changed_text(value, random) for key, value in footer.items() if key != b"ARROW:schema"}
            )
        return sink.getvalue()
    return mutate_bytes(data, random)


def _changed_text(value: bytes, random: Random) -> bytes:
    return mutate_text(value, random) if random.random() < 0.25 else value


def _change_table(table: pa.Table, random: Random) -> pa.Table:
    at = random.randrange(table.num_columns)
    name = table.schema.names[at]
    change = random.random()
    if change < 0.2:
        return table.remove_column(at)
    if change < 0.6:
        values = table.column(at).to_pylist()
        if values:
            values[random.randrange(len(values))] = random.choice(_VALUES)
        return table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    if change < 0.8:
        kind = random.choice((pa.float64(), pa.int8(), pa.string(), pa.int64(), pa.uint64(), pa.bool_()))
        return table.set_column(at, name, table.column(at).cast(kind, safe=False))
    if change < 0.9:
        return table.append_column(name, table.column(at))
    return pa.concat_tables([table] * random.choice((2, 3)))


def compressed(data: bytes, random: Random, kinds: Sequence[str]) -> bytes:
    """The input under one of some compressions, now and then damaged afterwards."""
    kind = random.choice(kinds)
    if random.random() < 0.05:
        data = data[: random.randrange(len(data) + 1)] + bytes(random.choice((10, 60)) << 20)
    if kind == "gzip":
        packed = gzip.compress(data, 6, mtime=0)
    elif kind == "xz":
        packed = lzma.compress(data, preset=0)
    else:
        packed = pa.compress(data, codec="zstd", asbytes=True)
    return mutate_bytes(packed, random) if random.random() < 0.5 else packed
