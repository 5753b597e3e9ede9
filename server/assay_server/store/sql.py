"""The metadata store's transaction over SQL: plain SQLAlchemy Core, without dialects.

Records that a transaction has read or written it need not read again, because nobody else writes meanwhile.
So a record that is saved changes only the columns that differ.
"""

from __future__ import annotations

from assay_server.store.parts.access import AccessRows
from assay_server.store.parts.agents import AgentRows
from assay_server.store.parts.analyses import AnalysisRows
from assay_server.store.parts.bundles import BundleRows
from assay_server.store.parts.fetching import FetchingRows
from assay_server.store.parts.overviews import OverviewRows
from assay_server.store.parts.requests import RequestRows
from assay_server.store.parts.segments import SegmentRows
from assay_server.store.parts.tokens import TokenRows


class SqlTransaction(
    OverviewRows,
    FetchingRows,
    RequestRows,
    SegmentRows,
    TokenRows,
    AnalysisRows,
    AgentRows,
    AccessRows,
    BundleRows,
):
    """A ``MetadataTransaction``: reads and writes inside one connection's current transaction."""
