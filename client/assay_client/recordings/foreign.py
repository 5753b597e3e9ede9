"""``assay import table``: a table of another tool as a recording of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assay_client.recordings.launch_files import write_launches
from assay_sampling.errors import ParameterError
from assay_sampling.readers.foreign_table.conversion import read_foreign_table
from assay_sampling.readers.foreign_table.mapping import read_mapping

_SUFFIXES = (".gz", ".zst", ".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", ".parquet")


def import_table(
    file: Path, mapping: Path, output: Path | None = None, *, synthetic: bool = False
) -> dict[str, Any]:
    """Write the launches of a table as a recording, and say what it holds.

    Args:
        file: a table of comma-separated values, JSON lines, JSON or Parquet.
        mapping: how its columns are launches (docs/how-to/foreign-tables.md).
        output: the recording; None: the table's name with ``.launches.parquet``, in the current folder.
        synthetic: mark the launches as not measured on silicon.

    Raises InputError naming file, line or row, and column of what is wrong in either file, ParameterError
    where the output is one of both.
    """
    written = output or Path(f"{_stem(file)}.launches.parquet")
    if any(written.resolve() == path.resolve() for path in (file, mapping)):
        raise ParameterError("--output", f"{written} is what is read", "name another file")
    table = read_foreign_table(file, read_mapping(mapping), synthetic=synthetic)
    launches = table.launches
    write_launches(written, launches)
    return {
        "path": str(written),
        "source": str(file),
        "rows": table.rows,
        "launches": len(launches),
        "kernels": launches.kernels(),
        "devices": launches.device_labels(),
        "level": launches.metadata.level,
        "counters": list(launches.counters),
        "origin": launches.metadata.origin,
        "synthetic": launches.metadata.synthetic,
        "columns_left_out": list(table.left_out),
        "notes": [note.to_dict() for note in launches.notes],
    }


def _stem(file: Path) -> str:
    name = file.name
    while (suffix := Path(name).suffix) in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name
