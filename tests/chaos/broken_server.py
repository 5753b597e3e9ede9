"""A server with a fault of its own, to show that the comparison finds it.

python -m tests.chaos.broken_server HOW
``lost-segment``: one slice is published without its last segment. ``doubled-segment``: one slice holds its
first segment twice.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from assay_core.records.attempt import AttemptKey
from assay_server.main import main as server_main
from assay_server.store.model import PublishedFile, Segment
from assay_server.store.record_store import CheckContent
from assay_server.store.records import LocalRecordStore
from assay_server.store.segments import SegmentContent

BREAKS = ("lost-segment", "doubled-segment")


def broken_server(how: str) -> tuple[str, ...]:
    """The beginning of the command line of such a server."""
    return sys.executable, "-m", "tests.chaos.broken_server", how


def _overlook(segment: Segment, content: SegmentContent, subject: str) -> None:
    """A check that the fault is not found by."""


def main() -> None:
    """Serve as ``assay-server`` does, but for one slice."""
    how = sys.argv.pop(1)
    real = LocalRecordStore.publish

    def publish(
        records: LocalRecordStore, key: AttemptKey, segments: Sequence[Segment], check: CheckContent
    ) -> PublishedFile:
        if key.run_id.endswith(".0003") and len(segments) > 1:
            segments = segments[:-1] if how == "lost-segment" else [segments[0], *segments]
            check = _overlook
        return real(records, key, segments, check)

    setattr(LocalRecordStore, "publish", publish)  # noqa: B010 - the fault
    server_main()


if __name__ == "__main__":
    main()
