"""``assay lab cancel ID``: stop a campaign, a workload or a run."""

from __future__ import annotations

from assay_client.cli.request_verb import request_verb
from assay_client.remote.client import Client

app = request_verb(
    "cancel",
    Client.cancel,
    """Cancel what has not finished of a campaign.

    Of all of it, of a workload, or one run. Everything already stored stays. 'assay lab retry' takes
    cancelled runs up again.""",
)
