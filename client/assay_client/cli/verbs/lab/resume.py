"""``assay lab resume ID``: resume a paused campaign, workload or run."""

from __future__ import annotations

from assay_client.cli.request_verb import request_verb
from assay_client.remote.client import Client

app = request_verb(
    "resume",
    Client.resume,
    """Resume a paused campaign, workload or run.

    Resuming a campaign also resumes runs that were paused separately.""",
)
