"""Content of an attempt's segments, checked one after another as they are unpacked for publication."""

from __future__ import annotations

import pyarrow as pa

from assay_sampling.errors import LaunchTableError
from assay_server.campaigns.ingest.ordinals import LaunchOrdinals
from assay_server.store.model import Segment
from assay_server.store.segments import SegmentContent, check_named


class AttemptContent:
    """Checks that the segments of an attempt make one launch table. For one attempt, in order.

    ``may_skip``: the numbers of its launches may have gaps, because a recording may hold only chosen ones.
    """

    def __init__(self, *, may_skip: bool) -> None:
        self._ordinals = LaunchOrdinals(may_skip=may_skip)
        self._schema: pa.Schema | None = None
        self._names: set[int] = set()

    def __call__(self, segment: Segment, content: SegmentContent, subject: str) -> None:
        """Check the next segment; raises LaunchTableError."""
        if content.launches != segment.launches:
            cause = f"it holds {content.launches:,} launches, but its header says {segment.launches:,}"
            raise LaunchTableError(subject, cause)
        if self._schema is not None and not self._schema.equals(content.schema, check_metadata=True):
            raise LaunchTableError(subject, "its schema differs from that of the attempt's first segment")
        self._schema = content.schema
        check_named(content, self._names, subject)
        self._names.update(content.names)
        self._ordinals.add(content.batches, subject)
