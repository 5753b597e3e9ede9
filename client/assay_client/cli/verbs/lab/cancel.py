"""``assay lab cancel ID``: stop a campaign, a workload or a run."""

from __future__ import annotations

from assay_client.cli.request_verb import request_verb
from assay_client.remote.client import Client

app = request_verb(
    "cancel",
    Client.cancel,
    """Cancel the unfinished runs of a campaign.

    All of them, those of a workload, or one. Stored records stay. 'assay lab retry' re-queues cancelled
    runs.""",
)
