"""How long a session of Nsight Systems was, from its export."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from assay_sampling.errors import InputError


def traced_seconds(database: Path) -> float:
    """The time that an export's events span; 0 where it does not say. Raises InputError."""
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            (span,) = connection.execute("SELECT max(duration) FROM ANALYSIS_DETAILS").fetchone()
    except sqlite3.OperationalError:
        return 0.0  # no such table
    except sqlite3.Error as error:
        raise InputError(database, f"it cannot be read ({error})", "export the report again") from error
    return float(span or 0) / 1e9
