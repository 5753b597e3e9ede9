"""The launch table: the data structure that readers, wire, store and analysis share.

A launch table is a stream of Arrow record batches of one schema. Its *base* columns say what was
launched and when; *counter* columns follow, one for each canonical counter that was measured
(:mod:`assay_sampling.counters.definitions`), float64, null where not measured. Units are in the metadata
of each field; what is true of the whole table (level, condition, devices, origin) is in the
metadata of the schema. All text is interned: a column ``*_id`` holds the 64-bit content hash of a text
that travels once, in a table of names.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import pyarrow as pa

from assay_sampling.arrays import identifiers_from, texts_from
from assay_sampling.errors import LaunchTableError
from assay_sampling.running.identity import (
    BASELINE,
    CacheCondition,
    ClockCondition,
    Condition,
    Device,
    Level,
    Origin,
    origin_of,
)

__all__ = [
    "BASELINE",
    "BASE_COLUMNS",
    "BASE_FIELDS",
    "CacheCondition",
    "ClockCondition",
    "Condition",
    "CounterColumn",
    "Device",
    "LaunchBatch",
    "Level",
    "METADATA_KEY",
    "NAMES_SCHEMA",
    "Names",
    "OPERATION_FIELDS",
    "Origin",
    "SCHEMA_VERSION",
    "SHAPE_COLUMNS",
    "TEXT_COLUMNS",
    "TableMetadata",
    "counter_columns",
    "has_operations",
    "launch_schema",
    "make_batch",
    "origin_of",
    "table_metadata",
    "text_columns",
    "text_id",
    "with_metadata",
]

SCHEMA_VERSION = 1
METADATA_KEY = b"assay"
ORIGINS: tuple[Origin, ...] = get_args(Origin)


@dataclass(frozen=True)
class TableMetadata:
    """What is true of every launch of a table; travels as JSON in the schema metadata.

    ``tool`` and ``tool_version`` name the profiler that measured; ``format`` the kind of file it was
    read from. ``origin`` says whether silicon was measured, the data are synthetic, or a simulator ran
    the launches: data of two origins are never in one table. ``units_assumed`` is True where a file gave no
    units and base units were assumed. ``driver_version`` is that of NVIDIA's driver, "" if unknown or
    without a driver.
    """

    level: Level
    origin: Origin = "measured"
    condition: Condition = field(default_factory=Condition)
    devices: tuple[Device, ...] = ()
    format: str = ""
    tool: str = ""
    tool_version: str = ""
    units_assumed: bool = False
    driver_version: str = ""

    @property
    def synthetic(self) -> bool:
        """Whether no silicon produced the data and no simulator either."""
        return self.origin == "synthetic"

    @property
    def simulated(self) -> bool:
        """Whether a cycle-level simulator ran the launches."""
        return self.origin == "simulated"

    def to_json(self) -> bytes:
        document = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self), "synthetic": self.synthetic}
        if not self.simulated:  # what ``synthetic`` says already
            del document["origin"]
        document["condition"] = self.condition.to_dict()
        if not self.driver_version:  # left out if unknown
            del document["driver_version"]
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> TableMetadata:
        """Read metadata back; raises LaunchTableError if it is not Assay's or of another version."""
        try:
            document = dict(json.loads(text))
            version = int(document.pop("schema_version"))
            if version != SCHEMA_VERSION:
                raise LaunchTableError(
                    "launch table",
                    f"it has schema version {version}, this program reads version {SCHEMA_VERSION}",
                    "use the release of Assay that wrote it, or a newer one",
                )
            if document["level"] not in ("detailed", "light"):
                raise ValueError(f"unknown level {document['level']!r}")
            synthetic = bool(document.pop("synthetic", False))
            origin = document.setdefault("origin", origin_of(synthetic=synthetic))
            if origin not in ORIGINS or synthetic != (origin == "synthetic"):
                raise ValueError(f"unknown origin {origin!r}")
            document["condition"] = Condition(**document["condition"])
            document["devices"] = tuple(Device(**device) for device in document["devices"])
            return cls(**document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LaunchTableError("launch table", f"its schema metadata cannot be read ({error})") from error


@dataclass(frozen=True)
class CounterColumn:
    """A counter column of a table: canonical name, unit, and which metric it was measured with.

    ``variant`` is "hardware", "sass" (counted by patched instructions) or "software" (known without
    counting): two variants of one quantity are two columns and never share a feature matrix.
    """

    name: str
    unit: str
    metric: str
    variant: str

    def arrow_field(self) -> pa.Field:
        metadata = {
            "kind": "counter",
            "unit": self.unit,
            "metric": self.metric,
            "variant": self.variant,
        }
        return pa.field(self.name, pa.float64(), nullable=True, metadata=metadata)


def _base(name: str, kind: pa.DataType, unit: str, *, nullable: bool) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"kind": "base", "unit": unit})


# grid_y, grid_z, block_y and block_z are null where a tool gives only the total number of blocks or
# threads (Nsight Compute's classic layout): grid_x or block_x then holds that total. All three axes are null
# where the tool does not know the grid or block of a launch (kernels of graphs that ROCm replays).
BASE_FIELDS: tuple[pa.Field, ...] = (
    _base("process", pa.int32(), "ordinal", nullable=False),
    _base("launch", pa.int64(), "ordinal", nullable=False),
    _base("report_id", pa.int64(), "ordinal", nullable=True),
    _base("graph_launch", pa.int64(), "ordinal", nullable=True),
    _base("graph_node", pa.int64(), "ordinal", nullable=True),
    _base("kernel_id", pa.uint64(), "content hash", nullable=False),
    _base("grid_x", pa.int64(), "blocks", nullable=True),
    _base("grid_y", pa.int32(), "blocks", nullable=True),
    _base("grid_z", pa.int32(), "blocks", nullable=True),
    _base("block_x", pa.int32(), "threads", nullable=True),
    _base("block_y", pa.int32(), "threads", nullable=True),
    _base("block_z", pa.int32(), "threads", nullable=True),
    _base("registers_per_thread", pa.int32(), "registers", nullable=True),
    _base("shared_memory_bytes", pa.int64(), "bytes per block, static and dynamic", nullable=True),
    _base("dynamic_shared_memory_bytes", pa.int64(), "bytes per block", nullable=True),
    _base("device", pa.int32(), "ordinal", nullable=True),
    _base("stream", pa.int64(), "identifier", nullable=True),
    _base("start_ns", pa.int64(), "ns", nullable=True),
    _base("duration_ns", pa.int64(), "ns", nullable=True),
    _base("nvtx_id", pa.uint64(), "content hash", nullable=True),
    _base("operator_id", pa.uint64(), "content hash", nullable=True),
    _base("input_shapes_id", pa.uint64(), "content hash", nullable=True),
)
BASE_COLUMNS: tuple[str, ...] = tuple(f.name for f in BASE_FIELDS)
TEXT_COLUMNS: tuple[str, ...] = ("kernel_id", "nvtx_id", "operator_id", "input_shapes_id")
# Present, directly behind the base columns, only where a recording knows which operation launched what:
# the ordinal of the operation's first launch, which tells calls apart within a process, and the
# identity that assay_sampling.operations.identity writes.
OPERATION_FIELDS: tuple[pa.Field, ...] = (
    _base("call", pa.int64(), "ordinal", nullable=True),
    _base("operation_id", pa.uint64(), "content hash", nullable=True),
)
SHAPE_COLUMNS: tuple[str, ...] = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")

NAMES_SCHEMA = pa.schema(
    [
        pa.field("id", pa.uint64(), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
    ]
)


def text_id(text: str) -> int:
    """64-bit content hash of a text (BLAKE2b, little-endian): the same on every machine and run."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


LONGEST_NAME_BYTES = 1 << 20
"""The longest text, in UTF-8, that a launch may refer to: names of kernels, paths of ranges, shapes of
inputs. Five of a launch fit one segment of the wire."""


def check_name(text: str, subject: str = "launch table") -> None:
    """Raises LaunchTableError for a name beyond LONGEST_NAME_BYTES."""
    if len(text) <= LONGEST_NAME_BYTES // 4:
        return
    length = len(text.encode(errors="surrogatepass"))
    if length > LONGEST_NAME_BYTES:
        raise LaunchTableError(
            subject,
            f"the name that begins with {text[:60]!r} has {length:,} bytes, and one may have "
            f"{LONGEST_NAME_BYTES:,}",
            "give the kernel, range or operator a shorter name",
        )


class Names:
    """Texts by their 64-bit content hash: each kernel name, NVTX path or operator is kept once.

    Raises LaunchTableError where two different texts have one hash, or a given id is not the hash of
    its text (two names are never confused silently), and for a text beyond LONGEST_NAME_BYTES.
    """

    def __init__(self, texts: Mapping[int, str] | None = None) -> None:
        self._texts: dict[int, str] = {}
        if texts:
            self.update(texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, identifier: int) -> bool:
        return identifier in self._texts

    def __getitem__(self, identifier: int) -> str:
        try:
            return self._texts[identifier]
        except KeyError:
            raise LaunchTableError(
                "launch table", f"no name was given for the id {identifier:#018x}"
            ) from None

    def items(self) -> Iterator[tuple[int, str]]:
        return iter(self._texts.items())

    def intern(self, text: str) -> int:
        """Keep ``text`` and return its id."""
        check_name(text)
        return self.keep(text)

    def keep(self, text: str) -> int:
        """As :meth:`intern`, for a text of any length: readers check it where they know its line."""
        identifier = text_id(text)
        other = self._texts.setdefault(identifier, text)
        if other != text:
            raise LaunchTableError(
                "launch table",
                f"two names have the same 64-bit hash: {other[:80]!r} and {text[:80]!r}",
                "report this to the authors of Assay",
            )
        return identifier

    def update(self, texts: Mapping[int, str]) -> None:
        """Take over texts that came with their ids, checking each."""
        for identifier, text in texts.items():
            if self.intern(text) != identifier:
                raise LaunchTableError(
                    "launch table",
                    f"the id {identifier:#018x} is not the hash of the name {text[:80]!r}",
                    "the table of names is damaged; read the recording again",
                )

    def update_checked(self, texts: Mapping[int, str]) -> None:
        """As :meth:`update`, of texts that were checked before: to hash a name takes most of its time."""
        self._texts.update(texts)

    def to_table(self) -> pa.Table:
        """The names as an Arrow table of NAMES_SCHEMA, in order of first use."""
        return pa.Table.from_arrays(
            [identifiers_from(list(self._texts)), texts_from(list(self._texts.values()))],
            schema=NAMES_SCHEMA,
        )

    @classmethod
    def from_table(cls, table: pa.Table) -> Names:
        """Names back from :meth:`to_table`; raises LaunchTableError on any other schema."""
        if not table.schema.equals(NAMES_SCHEMA):
            raise LaunchTableError("table of names", f"its schema is {table.schema}")
        names = cls()
        names.update(dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True)))
        return names


@dataclass(frozen=True)
class LaunchBatch:
    """Launches in transit: a record batch, and the names that it is the first to use."""

    records: pa.RecordBatch
    new_names: Mapping[int, str]


def launch_schema(
    metadata: TableMetadata, counters: Sequence[CounterColumn] = (), *, operations: bool = False
) -> pa.Schema:
    """The schema of a launch table with these counter columns, in this order; with ``operations`` it has
    OPERATION_FIELDS, too."""
    operation_fields = OPERATION_FIELDS if operations else ()
    fields = [*BASE_FIELDS, *operation_fields, *(counter.arrow_field() for counter in counters)]
    return pa.schema(fields, metadata={METADATA_KEY: metadata.to_json()})


def has_operations(schema: pa.Schema) -> bool:
    """Whether a launch table knows which operation each launch belongs to."""
    return OPERATION_FIELDS[0].name in schema.names


def text_columns(schema: pa.Schema) -> tuple[str, ...]:
    """The columns of a launch table that hold ids of texts."""
    return (*TEXT_COLUMNS, OPERATION_FIELDS[1].name) if has_operations(schema) else TEXT_COLUMNS


def base_fields(schema: pa.Schema) -> tuple[pa.Field, ...]:
    """The fields of a launch table that are not counters, as every table of this shape has them."""
    named = schema.names[len(BASE_FIELDS) : len(BASE_FIELDS) + len(OPERATION_FIELDS)]
    operation_fields = OPERATION_FIELDS if named == [item.name for item in OPERATION_FIELDS] else ()
    return (*BASE_FIELDS, *operation_fields)


def table_metadata(schema: pa.Schema) -> TableMetadata:
    """The metadata of a launch table's schema; raises LaunchTableError where it carries none."""
    text = (schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        raise LaunchTableError(
            "launch table", "its schema carries no 'assay' metadata, so it is not a launch table"
        )
    return TableMetadata.from_json(text)


def with_metadata(schema: pa.Schema, metadata: TableMetadata) -> pa.Schema:
    """``schema`` with other table metadata."""
    return schema.with_metadata({**(schema.metadata or {}), METADATA_KEY: metadata.to_json()})


def counter_columns(schema: pa.Schema) -> tuple[CounterColumn, ...]:
    """The counter columns of a launch table's schema, in order."""
    columns = []
    for item in schema:
        metadata = column_marks(item)
        if metadata.get("kind") == "counter":
            columns.append(
                CounterColumn(item.name, metadata["unit"], metadata["metric"], metadata["variant"])
            )
    return tuple(columns)


def column_marks(item: pa.Field) -> dict[str, str]:
    """The metadata of a column; raises LaunchTableError for bytes that are not text."""
    try:
        return {k.decode(): v.decode() for k, v in (item.metadata or {}).items()}
    except UnicodeDecodeError as error:
        raise LaunchTableError(
            "launch table", f"the metadata of column {item.name!r} are not UTF-8 ({error.reason})"
        ) from error


def make_batch(
    schema: pa.Schema, columns: Mapping[str, Any], *, num_rows: int | None = None
) -> pa.RecordBatch:
    """A batch of ``schema`` from arrays by column name; nullable columns that are absent become null.

    Values may be NumPy arrays, Arrow arrays or lists, all of one length. Raises LaunchTableError for a
    column that the schema lacks, a missing mandatory column, or values that do not fit the type.
    """
    unknown = set(columns) - set(schema.names)
    if unknown:
        raise LaunchTableError("launch table", f"unknown columns {sorted(unknown)}")
    if num_rows is None:
        num_rows = len(next(iter(columns.values()))) if columns else 0
    arrays = []
    for item in schema:
        if item.name in columns:
            arrays.append(_as_array(columns[item.name], item))
        elif item.nullable:
            arrays.append(pa.nulls(num_rows, item.type))
        else:
            raise LaunchTableError("launch table", f"the mandatory column {item.name!r} is missing")
    try:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    except pa.ArrowInvalid as error:
        raise LaunchTableError("launch table", str(error)) from error


def _as_array(values: Any, item: pa.Field) -> pa.Array:
    try:
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if isinstance(values, pa.Array):
            return values if values.type == item.type else values.cast(item.type)
        return pa.array(values, item.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise LaunchTableError("launch table", f"column {item.name!r}: {error}") from error
