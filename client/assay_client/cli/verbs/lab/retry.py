"""``assay lab retry ID``: re-queue failed and cancelled runs."""

from __future__ import annotations

from assay_client.cli.request_verb import request_verb
from assay_client.remote.client import Client

app = request_verb(
    "retry",
    Client.retry,
    """Re-queue failed and cancelled runs.

    Those of a campaign, of a workload, or one. Finished slices and the record of earlier attempts stay. A
    campaign that had ended continues and is analysed again.""",
)
