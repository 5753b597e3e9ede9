"""``assay admin``: verbs for admins of a lab."""

from assay_client.cli.verb import lazy_app
from assay_client.cli.verb_list import ADMIN

app = lazy_app(ADMIN)


@app.callback()
def admin() -> None:
    """Manage who may use a lab's server: agents, people, roles and budgets."""
