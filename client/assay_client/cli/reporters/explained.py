"""Draws explanations: of a selection's launches, of a code, of a campaign or run."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from assay_client.cli.reporters.run import render_run
from assay_client.cli.reporters.tables import print_facts
from assay_client.cli.reporters.text import clipped, counted, words_of
from assay_client.cli.reporters.verdict import render_verdict
from assay_client.meanings import Meaning
from assay_client.recordings.explained import LaunchExplained, RepresentativeExplained, SelectionExplained
from assay_client.remote.explained import CampaignExplained, Reason
from assay_sampling.documents.selection import OperationEntry
from assay_sampling.visible import visible

_SHOWN = 20
_NAME_WIDTH = 60


def render_meanings(meanings: Sequence[Meaning], console: Console) -> None:
    """Draw what a code means, what it does, and what to do."""
    for each in meanings:
        pairs = [(each.kind, each.code), ("meaning", each.meaning), ("effect", each.effect)]
        pairs += [("what to do", each.remedy)] if each.remedy else []
        print_facts([*pairs, ("more", f"assay docs {each.page}")], console)


def render_selection_explained(explanation: SelectionExplained, console: Console) -> None:
    """Draw the verdict, and each representative with its reason, or the one launch that was asked for."""
    unit = "launch" if explanation.operations is None else "operation"
    words = words_of({"unit": unit})
    render_verdict(explanation.to_dict() | {"unit": unit}, console)
    chosen = counted(len(explanation.representatives), f"{words.one} stands", f"{words.several} stand")
    whole = explanation.launches if explanation.operations is None else explanation.operations
    if explanation.asked is None:
        console.print(f"{explanation.method}: {chosen} for {whole:,}, in {explanation.groups:,} groups")
    else:
        _draw_launch(explanation.asked, console)
        console.print(f"{chosen} for its group:")
    for each in explanation.representatives[:_SHOWN]:
        _draw_representative(each, console)
    rest = len(explanation.representatives) - _SHOWN
    if rest > 0:
        console.print(f"and {rest:,} more, with smaller weights: --json has them all")
    console.print(f"how {explanation.method} groups and weighs: assay docs {explanation.page}")


def _draw_launch(launch: LaunchExplained, console: Console) -> None:
    pairs = [
        ("launch", f"{launch.launch} of process {launch.process} (simulators: {launch.launch + 1})"),
        ("kernel", visible(launch.kernel)),
        *([] if launch.operation is None else [("operation", visible(launch.operation))]),
        ("group", str(launch.group)),
    ]
    if (
        launch.cost is not None
        and launch.group_mean_cost is not None
        and launch.representative_cost is not None
    ):
        pairs.append(
            (
                "cost" if launch.operation is None else "its cost",
                f"{launch.cost:,.0f} {launch.unit}; its group's mean is {launch.group_mean_cost:,.0f}, and "
                f"its representative costs {launch.representative_cost:,.0f}",
            )
        )
    print_facts(pairs, console)


def _draw_representative(each: RepresentativeExplained, console: Console) -> None:
    if each.operation is not None:
        _draw_operation(each, each.operation, console)
        return
    process = f" of process {each.process}" if each.process else ""
    where = f"launch {each.launch}{process} (simulators: {each.sim_id})"
    console.print(
        f"{where} counts {each.weight:,.6g} times: {clipped(visible(each.kernel), _NAME_WIDTH)}",
        soft_wrap=True,
    )
    size = counted(each.group_launches, "launch", "launches")
    console.print(f"  {each.why}; group {each.group} has {size}", soft_wrap=True)


def _draw_operation(each: RepresentativeExplained, of: OperationEntry, console: Console) -> None:
    process = f" of process {each.process}" if each.process else ""
    name = f"{of.name} {of.shapes}".strip()
    console.print(
        f"{clipped(visible(name), 2 * _NAME_WIDTH)}{process} counts {each.weight:,.6g} times", soft_wrap=True
    )
    for launch in of.launches[:_SHOWN]:
        console.print(
            f"  launch {launch.launch} (simulators: {launch.sim_id}): "
            f"{clipped(visible(launch.kernel), _NAME_WIDTH)}",
            soft_wrap=True,
        )
    if len(of.launches) > _SHOWN:
        console.print(f"  and {len(of.launches) - _SHOWN:,} more launches")
    size = counted(each.group_launches, "operation", "operations")
    console.print(f"  {each.why}; group {each.group} has {size}", soft_wrap=True)


def render_campaign_explained(explanation: CampaignExplained, console: Console) -> None:
    """Draw the reasons, each with what to do, and of a run what it measured and its attempts."""
    console.print(f"{explanation.kind} {explanation.subject} is {explanation.state}")
    for each in explanation.reasons:
        console.print(visible(_reason(each)), soft_wrap=True)
        if each.remedy:
            console.print(visible(f"  what to do: {each.remedy}"), soft_wrap=True)
    if not explanation.reasons:
        console.print("no failures, no flags, and no run waits for a reason of its own")
    if explanation.run is not None:
        console.print()
        render_run(explanation.run, console)


def _reason(each: Reason) -> str:
    runs = f"{each.first_run_id}" + (f" and {each.runs - 1:,} more" if each.runs > 1 else "")
    verb = {"waits": "waiting", "failed": "failed", "flag": "flagged"}[each.what]
    effect = ", invalidates the run" if each.invalidates else ""
    return f"{runs} {verb} [{each.code}{effect}]: {each.detail}"
