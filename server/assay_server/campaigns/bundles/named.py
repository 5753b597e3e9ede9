"""Which bundles campaigns name, and who owns those campaigns: what nobody names any more goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from assay_core.records.campaign import BundleFolder
from assay_core.records.upload import Bundle
from assay_sampling.errors import CampaignError
from assay_server.access.caller import OWNER_ID, current_caller
from assay_server.campaign_file.reading import CampaignFile
from assay_server.campaigns.bundles.stored import BundleStore
from assay_server.store.sql import SqlTransaction


def holder() -> str:
    """Whose bundles the current call is about."""
    caller = current_caller()
    return OWNER_ID if caller is None else caller.identity_id


def folders_named(file: CampaignFile, store: BundleStore | None) -> tuple[BundleFolder, ...]:
    """The folders of bundles that a campaign file names, each once; raises CampaignError for too many."""
    folders: dict[str, BundleFolder] = {}
    for position, workload in enumerate(file.campaign.workloads):
        if workload.bundle is not None:
            line = file.line(("workloads", position, "bundle"))
            folders.setdefault(workload.bundle, BundleFolder(workload.bundle, workload.name, line))
    if store is not None and len(folders) > store.limits.campaign_bundles:
        raise CampaignError(
            file.name,
            f"it names {len(folders):,} bundles; at most {store.limits.campaign_bundles:,} are taken",
            "make several campaigns",
        )
    return tuple(folders.values())


def sent_bundles(
    folders: Iterable[BundleFolder], sent: Mapping[str, Bundle], store: BundleStore | None, file_name: str
) -> dict[str, Bundle]:
    """The bundle of each folder that a campaign names. Raises CampaignError, or InputError, for others."""
    bundles: dict[str, Bundle] = {}
    for each in folders:
        if store is None or each.folder not in sent:
            raise CampaignError(
                f"{file_name or 'campaign file'}:{each.line}",
                f"the files of the bundle {each.folder!r} were not sent",
                "submit it with 'assay lab submit' of the server's release",
            )
        bundles[each.folder] = sent[each.folder]
    if store is not None:
        store.require(holder(), bundles.values())
    return bundles


def named_bundles(store: SqlTransaction) -> dict[str, frozenset[str]]:
    """By bundle that a campaign names: the owners of such campaigns."""
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for overview in store.campaigns():
        campaign = store.campaign(overview.campaign_id)
        for bundle in campaign.compiled.bundles if campaign is not None else ():
            owners[bundle.sha256].add(overview.owner or OWNER_ID)
    return {sha256: frozenset(bundle_owners) for sha256, bundle_owners in owners.items()}
