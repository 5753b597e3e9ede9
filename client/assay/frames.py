"""Arrow tables as pandas frames, with the units and the facts of the table in ``frame.attrs``.

pandas is an extra (``assay-gpu[notebook]``) and is loaded with the first frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from assay_sampling.errors import LaunchTableError, MissingExtraError

if TYPE_CHECKING:
    import pandas as pd

UNITS = "units"
_METRICS = "metrics"
_FACTS = "assay"
# What the metadata of a column say, and the key of ``attrs`` that has it for all columns.
_ATTRS = {"unit": UNITS, "metric": _METRICS}


def to_frame(table: pa.Table) -> pd.DataFrame:
    """``table`` as a frame. Integer columns that may have nulls become pandas' nullable ``Int64`` and
    ``Int32``, so that numbers stay exact; texts that repeat become categories."""
    pandas = load_pandas()
    nullable = {
        pa.int64(): pandas.Int64Dtype(),
        pa.int32(): pandas.Int32Dtype(),
        pa.bool_(): pandas.BooleanDtype(),
    }
    columns = {
        item.name: table[item.name].to_pandas(types_mapper=nullable.get if item.nullable else None)
        for item in table.schema
    }
    frame = pandas.DataFrame(columns)
    column_metadata = {key: _words_by_column(table.schema, word) for word, key in _ATTRS.items()}
    facts = (table.schema.metadata or {}).get(_FACTS.encode(), b"").decode()
    frame.attrs = {key: value for key, value in {**column_metadata, _FACTS: facts}.items() if value}
    return frame


def from_frame(frame: pd.DataFrame, name: str) -> pa.Table:
    """A frame as an Arrow table, without its index; NaN becomes null.

    Raises TypeError for another object, LaunchTableError with ``name`` for a column of mixed or odd values.
    """
    pandas = load_pandas()
    if not isinstance(frame, pandas.DataFrame):
        raise TypeError(f"from_pandas takes a pandas.DataFrame, not {type(frame).__name__}")
    columns = [str(column) for column in frame.columns]
    arrays = [_array(frame.iloc[:, at], name, column) for at, column in enumerate(columns)]
    column_metadata = {word: frame.attrs.get(key) or {} for word, key in _ATTRS.items()}
    fields = [
        item.with_metadata(
            {word: str(by[item.name]) for word, by in column_metadata.items() if item.name in by}
        )
        for item in (pa.field(column, array.type) for column, array in zip(columns, arrays, strict=True))
    ]
    facts = frame.attrs.get(_FACTS)
    return pa.Table.from_arrays(
        arrays, schema=pa.schema(fields, {} if facts is None else {_FACTS: str(facts)})
    )


def _array(values: pd.Series, name: str, column: str) -> pa.Array:
    try:
        array = pa.Array.from_pandas(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise LaunchTableError(
            name,
            f"the column {column!r} cannot be read ({str(error)[:200]})",
            "give it numbers or text, of one kind",
        ) from error
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _words_by_column(schema: pa.Schema, word: str) -> dict[str, str]:
    """By column, a word of its metadata."""
    texts = {item.name: (item.metadata or {}).get(word.encode(), b"").decode() for item in schema}
    return {name: text for name, text in texts.items() if text}


def load_pandas() -> Any:
    """The module pandas; raises MissingExtraError if it is not installed."""
    try:
        import pandas  # noqa: PLC0415 - an extra, and slow to load
    except ModuleNotFoundError as error:
        raise MissingExtraError("pandas", error.name or "pandas", "notebook") from error
    return pandas
