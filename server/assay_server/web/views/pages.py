"""The pages: what each is about, which call of the access table it stands for, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import quote

from assay_core.records.campaign import (
    CampaignsPage,
    CampaignState,
    CampaignStatus,
    RunState,
    StatusRequest,
)
from assay_core.records.lab import LabQuestion
from assay_core.records.runs import NamedRun
from assay_server.rpc.handlers.campaigns import CampaignHandler
from assay_server.rpc.handlers.lab import LabHandler
from assay_server.store.parts.overviews import RunFilter
from assay_server.web.activity import Pulse
from assay_server.web.views.campaign_page import PAUSED, CampaignPage, Past
from assay_server.web.views.cells import STANDINGS
from assay_server.web.views.filters import NO_FILTER, Filter, Shown, choice, page_of
from assay_server.web.views.region import Drawing
from assay_server.web.views.templating import part, rows

CAMPAIGNS, CAMPAIGN, RUNS, RUN, GPUS, QUEUE = "campaigns", "campaign", "runs", "run", "gpus", "queue"
# What a page shows, anybody may learn who may make this call.
STANDS_FOR: Mapping[str, str] = MappingProxyType(
    {
        CAMPAIGNS: "assay.v1.CampaignService/ListCampaigns",
        CAMPAIGN: "assay.v1.CampaignService/GetStatus",
        RUNS: "assay.v1.CampaignService/GetStatus",
        RUN: "assay.v1.CampaignService/GetRun",
        GPUS: "assay.v1.LabService/ListAgents",
        QUEUE: "assay.v1.LabService/GetQueue",
    }
)
_RUNS_OF_A_PAGE = 100
_CAMPAIGNS_OF_A_PAGE, _CAMPAIGNS_OF_A_HISTORY = 100, 30
_MOST_ESTIMATED = 50
_MOST_PAGES = 100


@dataclass(frozen=True)
class PageAsked:
    """A page: its kind, the campaign or run that it is about, and what its list shows from which place on."""

    kind: str
    campaign_id: str = ""
    run_id: str = ""
    first: int = 0
    filter: Filter = NO_FILTER

    @property
    def about(self) -> dict[str, str]:
        return {"campaign_id": self.campaign_id, "run_id": self.run_id}


class Pages:
    """Draws pages from the answers of the handlers of gRPC. Thread-safe; may block."""

    def __init__(
        self, campaign: CampaignPage, campaigns: CampaignHandler, lab: LabHandler, pulse: Pulse
    ) -> None:
        self._campaigns = campaigns
        self._lab = lab
        self._pulse = pulse
        self._campaign = campaign

    def drawn(self, page: PageAsked, acts: bool) -> Drawing:
        """The page; ``acts``: with buttons. Raises UnknownThingError."""
        draw: dict[str, Callable[[], Drawing]] = {
            CAMPAIGNS: lambda: self._campaigns_page(page),
            CAMPAIGN: lambda: self._campaign.drawn(page.campaign_id, acts, page.first, page.filter),
            RUNS: lambda: self._runs_page(page, acts),
            RUN: lambda: self._run_page(page.run_id, acts),
            GPUS: self._gpus_page,
            QUEUE: self._queue_page,
        }
        return draw[page.kind]()

    def campaign_of(self, run_id: str) -> str:
        """The campaign of a run; "" for no run. Raises UnknownThingError."""
        return self._campaign.of_run(run_id) if run_id else ""

    def version(self, page: PageAsked) -> int:
        """A number that changes when the page may have."""
        return self._pulse.version(page.campaign_id)

    def _campaigns_page(self, page: PageAsked) -> Drawing:
        overview = self._campaigns.list_campaigns(CampaignsPage())
        campaigns = list(overview.campaigns)
        following, pages = overview.campaigns_next, 1
        while following and pages < _MOST_PAGES:
            next_page = self._campaigns.list_campaigns(CampaignsPage(following))
            campaigns += next_page.campaigns
            following, pages = next_page.campaigns_next, pages + 1
        matching_campaigns = [each for each in reversed(campaigns) if _is_wanted(each, page.filter)]
        # The history of a name has results, of which only some are kept at hand.
        size = _CAMPAIGNS_OF_A_HISTORY if page.filter.name else _CAMPAIGNS_OF_A_PAGE
        shown = page_of(matching_campaigns, page.first, size, len(campaigns))
        listed = {
            each.campaign_id: {"c": each, "past": self._past(each, page.filter)}
            for each in self._with_estimates(shown.entries)
        }
        states = dict.fromkeys(str(each.state) for each in campaigns)
        regions = {
            "news": part("news", o=overview, ingest=self._pulse.ingest()),
            "shown": part("shown", shown=shown, filter=page.filter, path="/"),
            "campaigns": rows("campaign", listed, words=STANDINGS),
        }
        choices = (
            choice("name", "Name", sorted({each.name for each in campaigns})),
            choice("state", "State", sorted(states)),
        )
        facts = {"some": bool(campaigns), "filter": page.filter, "choices": choices}
        title = f"History of {page.filter.name}" if page.filter.name else "Campaigns"
        return Drawing(title, "campaigns.html.j2", regions, facts)

    def _past(self, status: CampaignStatus, page_filter: Filter) -> Past | None:
        """What the history of a name shows of a campaign; None in other lists."""
        return self._campaign.past(status.campaign_id) if page_filter.name else None

    def _with_estimates(self, campaigns: Sequence[CampaignStatus]) -> list[CampaignStatus]:
        """Running campaigns with their time left, which the list does not have."""
        running = [each for each in campaigns if each.state is CampaignState.RUNNING][:_MOST_ESTIMATED]
        statuses = {
            each.campaign_id: self._campaigns.status(StatusRequest(each.campaign_id, without_runs=True))
            for each in running
        }
        return [statuses.get(each.campaign_id, each) for each in campaigns]

    def _runs_page(self, page: PageAsked, acts: bool) -> Drawing:
        request = StatusRequest(page.campaign_id, page.first, _RUNS_OF_A_PAGE)
        status, matching = self._campaigns.chosen_runs(request, _chosen(page.filter))
        shown = Shown(status.runs, page.first, matching, status.runs_total, _RUNS_OF_A_PAGE)
        path = f"/campaigns/{quote(page.campaign_id)}/runs"
        facts = {
            "campaign_id": page.campaign_id,
            "filter": page.filter,
            "choices": self._campaign.run_choices(page.campaign_id),
            "path": path,
            "acts": acts,
        }
        listed = {run.run_id: {"r": run} for run in status.runs}
        regions = {
            "shown": part("shown", shown=shown, filter=page.filter, path=path),
            "runs": rows("run", listed, acts=acts, campaign_id=page.campaign_id),
        }
        return Drawing(f"Runs of {page.campaign_id}", "runs.html.j2", regions, facts)

    def _run_page(self, run_id: str, acts: bool) -> Drawing:
        detail = self._campaigns.run(NamedRun(run_id))
        campaign_id = self._campaign.of_run(run_id)
        attempts = {
            f"{each.key.slice_index}.{each.key.attempt}": {"a": each} for each in reversed(detail.attempts)
        }
        facts = {"r": detail.run, "campaign_id": campaign_id, "acts": acts}
        regions = {
            "run": part("run", files=self._campaign.files_of(run_id), **facts),
            "attempts": rows("attempt", attempts),
        }
        return Drawing(f"Run {run_id}", "run.html.j2", regions, facts)

    def _gpus_page(self) -> Drawing:
        agents = self._lab.agents(LabQuestion()).agents
        slots = {
            f"{agent.agent_id} {slot.slot.slot_id}": {"a": agent, "s": slot}
            for agent in agents
            for slot in agent.slots
        }
        busy = sum(slot.leased_at_ms > 0 for agent in agents for slot in agent.slots)
        regions = {
            "summary": part("gpus", agents=agents, busy=busy, ingest=self._pulse.ingest()),
            "slots": rows("slot", slots),
            "agents": rows("agent", {agent.agent_id: {"a": agent} for agent in agents}),
        }
        return Drawing("GPUs", "gpus.html.j2", regions)

    def _queue_page(self) -> Drawing:
        queue = self._lab.queue(LabQuestion())
        queued = {
            f"{each.campaign_id} {each.first_run_id} {number}": {"q": each}
            for number, each in enumerate(queue.queued)
        }
        regions = {"summary": part("queue", queue=queue), "queue": rows("queued", queued)}
        return Drawing("Queue", "queue.html.j2", regions)


def _chosen(page_filter: Filter) -> RunFilter:
    """The runs that a filter asks for; a state that there is not asks for any."""
    state = RunState(page_filter.state) if page_filter.state in tuple(RunState) else None
    return RunFilter(
        page_filter.search, page_filter.device, state, page_filter.flag, paused=page_filter.state == PAUSED
    )


def _is_wanted(status: CampaignStatus, page_filter: Filter) -> bool:
    return (
        page_filter.finds(status.campaign_id, status.owner_name, status.project)
        and page_filter.name in ("", status.name)
        and page_filter.state in ("", str(status.state))
    )
