"""Taking in a campaign: read, planned and stored in one go, or refused."""

from __future__ import annotations

from assay_server.campaigns.coordinator import Coordinator
from assay_server.campaigns.learned import learned_costs
from assay_server.campaigns.plan import analysis_settings, next_number, plan_campaign
from assay_server.campaigns.spec import load_campaign
from assay_server.store.model import Campaign, CampaignState


def submit(
    coordinator: Coordinator, text: str | bytes, file_name: str, base_directory: str
) -> tuple[str, int]:
    """Plan and store a campaign; returns its id and the number of its runs.

    Raises CampaignError naming line and field of what is wrong with the file.
    """
    spec = load_campaign(text, file_name or "campaign file")
    with coordinator.schedule() as schedule:
        number = next_number(schedule.store.campaign_numbers(spec.campaign))
        campaign_id = f"{spec.campaign}-{number}"
        plan = plan_campaign(spec, campaign_id, base_directory, file_name, learned_costs(schedule.store))
        schedule.add_campaign(
            Campaign(
                campaign_id=campaign_id,
                name=spec.campaign,
                number=number,
                synthetic=spec.synthetic,
                state=CampaignState.RUNNING,
                text=text if isinstance(text, str) else text.decode(),
                file_name=file_name,
                base_directory=base_directory,
                analysis=analysis_settings(spec),
                created_at_ms=coordinator.clock.now_ms(),
            ),
            plan.runs,
            plan.slices,
        )
    return campaign_id, len(plan.runs)
