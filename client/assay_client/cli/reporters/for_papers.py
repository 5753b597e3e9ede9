r"""Tables of the terminal as LaTeX, each a ``tabular`` for ``\\input`` in a paper, with the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from assay_client.cli.reporters.tables import Table
from assay_client.files import write_atomically
from assay_report.latex import latex_tabular
from assay_report.tables.table import Cell, Column
from assay_report.tables.table import Table as ReportTable


def write_tables(folder: Path | None, tables: Mapping[str, Table], label: str = "") -> None:
    """Write each table as ``NAME.tex`` into the folder, which is made; nothing without a folder.

    ``label``: the last line of each, such as that the data are synthetic. Raises StorageError.
    """
    if folder is None:
        return
    for name, table in tables.items():
        write_atomically(folder / f"{name}.tex", latex_tabular(_of_report(table), label))


def _of_report(table: Table) -> ReportTable:
    columns = (Column(name, alignment="right" if name in table.right else "left") for name in table.columns)
    return ReportTable(
        table.title, tuple(columns), tuple(tuple(Cell(cell) for cell in row) for row in table.rows)
    )
