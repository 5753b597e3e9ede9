"""``assay select`` on a Kineto trace, by launch and by operation, in CPU seconds of one process.

The trace is synthetic, from a seeded generator; reading it is part of both, as of what people wait for.
"""

from __future__ import annotations

import io
import json
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path

from assay_client.cli.main import main
from tests.bench.made_trace import write_trace
from tests.bench.measure import Measurement


def _selected(launches: int, unit: str) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        path = Path(folder) / "trace.json"
        write_trace(path, launches)
        printed = io.StringIO()
        began = time.process_time()
        with redirect_stdout(printed):
            code = main(["select", "stem", str(path), "--unit", unit, "--synthetic", "--json"])
        seconds = time.process_time() - began
    if code:
        raise RuntimeError(f"assay select ended with {code}")
    document = json.loads(printed.getvalue())
    return Measurement(document["profile"]["launches"], seconds, {})


def by_launch(launches: int) -> Measurement:
    """``assay select stem TRACE``."""
    return _selected(launches, "launch")


def by_operation(launches: int) -> Measurement:
    """``assay select stem TRACE --unit operation``."""
    return _selected(launches, "operation")
