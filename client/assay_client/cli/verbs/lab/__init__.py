"""``assay lab``: verbs for people who measure on the GPUs of a lab."""

from assay_client.cli.verb import lazy_app
from assay_client.cli.verb_list import LAB

app = lazy_app(LAB)


@app.callback()
def lab() -> None:
    """Measure on the GPUs of a lab: submit campaigns to its server, and follow them."""
