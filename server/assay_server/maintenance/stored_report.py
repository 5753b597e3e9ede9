"""The report of a campaign in a state folder, read without a server; a campaign that has not ended has one of
what is there."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from assay_core.files.durable import storage_errors
from assay_report.model.report import Report
from assay_report.reading import parse_report
from assay_sampling.errors import CampaignError, ParameterError, StorageError
from assay_server.analysis.runs.intact import require_intact
from assay_server.campaigns.analysing.job import with_local_files
from assay_server.campaigns.analysing.request_builder import analysis_request
from assay_server.maintenance.database_copy import METADATA, copy_database, has_metadata
from assay_server.records.opening import look_at_records
from assay_server.store.model import Campaign
from assay_server.store.parts.campaigns import CampaignOverview
from assay_server.store.record_store import RecordStore
from assay_server.store.sqlite import SqliteStore

# Below the folder of `assay run` and `assay import`, of `assay demo`, and of a server itself.
_SERVERS = (Path("server"), Path("state") / "server", Path())


def server_folder(state: Path) -> Path:
    """The server's folder in a state folder of ``assay run``, ``demo`` or ``assay-server``.

    Raises StorageError if no report was stored.
    """
    for inner in _SERVERS:
        if has_metadata(state / inner):
            return state / inner
    raise StorageError(
        str(state),
        "there is no state of Assay in it",
        "name the folder that was given as --state to assay run, or as --out to assay demo",
    )


def stored_report(state: Path, campaign_id: str | None = None) -> Report:
    """The report of a campaign in ``state``; None: of the only one there.

    A stored report is taken as it is. Otherwise the runs that have data are analysed here, and the report
    says which have none. A server may run meanwhile, for the rows are read from a copy. Raises StorageError,
    CampaignError for an unknown campaign or one without any data, and the errors of an analysis.
    """
    folder = server_folder(state)
    records = look_at_records(folder)
    with tempfile.TemporaryDirectory(prefix="assay-report-") as copied:
        database = Path(copied) / METADATA
        copy_database(folder, database)
        with closing(SqliteStore(database)) as store, store.snapshot() as read:
            campaign = _named_campaign(read.campaigns(), state, campaign_id)
            stored_campaign = read.campaign(campaign)
            assert stored_campaign is not None  # listed in the same snapshot
            report = _report_on_disk(stored_campaign, records)
            if report is not None:
                return report
            request = analysis_request(read, campaign, records)
    if not request.runs:
        raise CampaignError(
            f"campaign {campaign}", "none of its runs has data yet", f"see why: assay lab status {campaign}"
        )
    from assay_server.analysis.pipeline import analyse  # noqa: PLC0415 - loads the analysis

    with with_local_files(request) as here:
        require_intact(here.runs)
        return analyse(here)


def _named_campaign(campaigns: Sequence[CampaignOverview], state: Path, campaign_id: str | None) -> str:
    """The campaign that is meant; raises ParameterError where that is not clear."""
    ids = [each.campaign_id for each in campaigns]
    if campaign_id is None and len(ids) == 1:
        return ids[0]
    if campaign_id in ids:
        return str(campaign_id)
    listed = ", ".join(ids[-8:]) or "none"
    if campaign_id is None:
        raise ParameterError("ID", f"{state} has {len(ids)} campaigns", f"name one of them: {listed}")
    raise CampaignError(f"campaign {campaign_id}", f"{state} does not have it", f"it has {listed}")


def _report_on_disk(campaign: Campaign, records: RecordStore) -> Report | None:
    """The report that was stored when the campaign was done; None without one."""
    if not campaign.has_report:
        return None
    path = records.report_path(campaign.campaign_id, "json")
    with storage_errors(path):
        return parse_report(path.read_bytes(), str(path))
