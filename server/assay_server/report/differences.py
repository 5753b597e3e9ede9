"""What recordings that were refused do not share: the first launches that differ, said once a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from assay_server.report.tables import FIRST_DIFFERENCES, Row, Table, columns_of


def differences_table(rows: Sequence[Row]) -> Table | None:
    """The first differences of each refusal in rows of one workload; None where there is none."""
    body = dict.fromkeys(
        (row["device"], cause, differences)
        for row in rows
        for cause, mark, differences in [row["reason"].partition(FIRST_DIFFERENCES)]
        if mark
    )
    columns = columns_of("GPU", "~refused", "~first differences, and what to do")
    return Table("Launches that differ", columns, tuple(body)) if body else None
