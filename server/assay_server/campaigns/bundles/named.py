"""Which bundles campaigns name, and who owns those campaigns: what nobody names any more goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from assay_core.records.upload import Bundle
from assay_sampling.errors import CampaignError
from assay_server.access.caller import OWNER_ID, current_caller
from assay_server.campaign_file.spec import Campaign
from assay_server.campaigns.bundles.stored import BundleStore
from assay_server.store.protocols import MetadataReader


def holder() -> str:
    """Whose bundles the current call is about."""
    caller = current_caller()
    return OWNER_ID if caller is None else caller.identity_id


def sent_bundles(
    spec: Campaign, sent: Mapping[str, Bundle], store: BundleStore | None, file_name: str
) -> dict[str, Bundle]:
    """The bundle of each folder that a campaign names. Raises CampaignError, or InputError, for others."""
    folders = list(dict.fromkeys(each.bundle for each in spec.workloads if each.bundle is not None))
    for folder in folders:
        if store is None or folder not in sent:
            raise CampaignError(
                file_name or "campaign file",
                f"the files of the bundle {folder!r} were not sent",
                "submit it with 'assay submit' of this release, installed with the extra 'server'",
            )
    if store is not None and len(folders) > store.limits.campaign_bundles:
        raise CampaignError(
            file_name or "campaign file",
            f"it names {len(folders):,} bundles; at most {store.limits.campaign_bundles:,} are taken",
            "make several campaigns",
        )
    found = {folder: sent[folder] for folder in folders}
    if store is not None:
        store.require(holder(), found.values())
    return found


def named_bundles(store: MetadataReader) -> dict[str, frozenset[str]]:
    """By bundle that a campaign names: the owners of such campaigns."""
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for overview in store.campaigns():
        campaign = store.campaign(overview.campaign_id)
        for bundle in campaign.compiled.bundles if campaign is not None else ():
            owners[bundle.sha256].add(overview.owner or OWNER_ID)
    return {sha256: frozenset(found) for sha256, found in owners.items()}
