"""``assay lab retry ID``: take failed and cancelled runs up again."""

from __future__ import annotations

from assay_client.cli.request_verb import request_verb
from assay_client.remote.client import Client

app = request_verb(
    "retry",
    Client.retry,
    """Re-queue failed and cancelled runs.

    Of a campaign, of a workload, or one run. Slices that are done stay, and earlier attempts stay in the
    record. A campaign that had ended goes on and is analysed again.""",
)
