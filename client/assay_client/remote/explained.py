"""Why a run or a campaign is where it is, and what to do: the server's answers put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from assay_client.meanings import meanings_of
from assay_client.remote.client import Client
from assay_core.records.campaign import RunState
from assay_sampling.documents.base import Part, says


class Reason(Part):
    """One reason why runs wait, failed, or are not believed."""

    what: Annotated[Literal["waits", "failed", "flag"], says("what it is a reason for")]
    code: Annotated[str, says("kind of waiting, class of failure, or name of the flag")]
    runs: Annotated[int, says("runs that it holds for", "runs")]
    first_run_id: Annotated[str, says("the first of them")]
    detail: Annotated[str, says("the reason itself, for people")]
    remedy: Annotated[str, says("what to do; empty if nothing is needed")]
    invalidates: Annotated[bool, says("a flag for which results do not rest on the run")] = False


class CampaignExplained(Part):
    """``assay explain ID --json``, of a campaign or a run."""

    kind: Literal["campaign", "run"]
    subject: Annotated[str, says("id of the campaign or run")]
    state: Annotated[str, says("its state")]
    reasons: Annotated[list[Reason], says("why, the most runs first")]
    run: Annotated[
        dict[str, Any] | None,
        says("of a run: its files, flags, and attempts with command, environment, log and facts"),
    ] = None


def explain_run(client: Client, run_id: str) -> CampaignExplained:
    """Why a run is in its state. Raises CampaignError for a run that the server does not know."""
    run = client.run(run_id)
    waits = []
    if run["state"] == RunState.WAITING:
        why = run["waiting_for"] or "its turn has not come: assay lab queue says who is ahead"
        waits.append(Reason(what="waits", code="waiting", runs=1, first_run_id=run_id, detail=why, remedy=""))
    return CampaignExplained(
        kind="run",
        subject=run_id,
        state=run["state"],
        reasons=_gathered([*waits, *_reasons(run)]),
        run=run,
    )


def explain_campaign(client: Client, campaign_id: str) -> CampaignExplained:
    """Why a campaign is in its state. Raises CampaignError for one that the server does not know."""
    campaign = client.status(campaign_id)
    reasons = [_waiting(each) for each in campaign["waiting"]]
    if campaign["failure"]:
        reasons.append(_failed(campaign["failure"], campaign_id))
    for run in campaign["runs"]:
        reasons += _reasons(run)
    return CampaignExplained(
        kind="campaign", subject=campaign_id, state=campaign["state"], reasons=_gathered(reasons)
    )


def _waiting(each: Mapping[str, Any]) -> Reason:
    return Reason(
        what="waits",
        code=each["kind"],
        runs=each["runs"],
        first_run_id=each["first_run_id"],
        detail=each["reason"],
        remedy="",
    )


def _reasons(run: Mapping[str, Any]) -> list[Reason]:
    reasons = [_failed(run["failure"], run["run_id"])] if run["failure"] else []
    for flag in run["flags"]:
        meaning = next((each for each in meanings_of(flag["name"]) if each.kind == "flag"), None)
        reasons.append(
            Reason(
                what="flag",
                code=flag["name"],
                runs=1,
                first_run_id=run["run_id"],
                detail=flag["detail"],
                remedy=meaning.remedy if meaning else "",
                invalidates=flag["invalidates"],
            )
        )
    return reasons


def _failed(failure: Mapping[str, Any], subject: str) -> Reason:
    return Reason(
        what="failed",
        code=failure["failure_class"],
        runs=1,
        first_run_id=subject,
        detail=failure["cause"],
        remedy=failure["remedy"],
    )


def _gathered(reasons: Iterable[Reason]) -> list[Reason]:
    """Reasons of one kind and code as one, with the first run's words; failures first, then by runs."""
    by_kind: dict[tuple[str, str], Reason] = {}
    for each in reasons:
        key = (each.what, each.code)
        first = by_kind.get(key)
        by_kind[key] = each if first is None else first.model_copy(update={"runs": first.runs + each.runs})
    order = ("failed", "waits", "flag")
    return sorted(by_kind.values(), key=lambda each: (order.index(each.what), -each.runs))
