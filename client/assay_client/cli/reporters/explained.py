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


def render_meanings(found: Sequence[Meaning], console: Console) -> None:
    """Draw what a code means, what it does, and what to do."""
    for each in found:
        pairs = [(each.kind, each.code), ("meaning", each.meaning), ("effect", each.effect)]
        pairs += [("what to do", each.remedy)] if each.remedy else []
        print_facts([*pairs, ("more", f"assay docs {each.page}")], console)


def render_selection_explained(found: SelectionExplained, console: Console) -> None:
    """Draw the verdict, and each representative with its reason, or the one launch that was asked for."""
    unit = "launch" if found.operations is None else "operation"
    words = words_of({"unit": unit})
    render_verdict(found.to_dict() | {"unit": unit}, console)
    chosen = counted(len(found.representatives), f"{words.one} stands", f"{words.several} stand")
    whole = found.launches if found.operations is None else found.operations
    if found.asked is None:
        console.print(f"{found.method}: {chosen} for {whole:,}, in {found.groups:,} groups")
    else:
        _draw_launch(found.asked, console)
        console.print(f"{chosen} for its group:")
    for each in found.representatives[:_SHOWN]:
        _draw_representative(each, console)
    rest = len(found.representatives) - _SHOWN
    if rest > 0:
        console.print(f"and {rest:,} more, with smaller weights: --json has them all")
    console.print(f"how {found.method} groups and weighs: assay docs {found.page}")


def _draw_launch(asked: LaunchExplained, console: Console) -> None:
    pairs = [
        ("launch", f"{asked.launch} of process {asked.process} (simulators: {asked.launch + 1})"),
        ("kernel", visible(asked.kernel)),
        *([] if asked.operation is None else [("operation", visible(asked.operation))]),
        ("group", str(asked.group)),
    ]
    if asked.cost is not None and asked.group_mean_cost is not None and asked.representative_cost is not None:
        pairs.append(
            (
                "cost" if asked.operation is None else "its cost",
                f"{asked.cost:,.0f} {asked.unit}; its group's mean is {asked.group_mean_cost:,.0f}, and its "
                f"representative costs {asked.representative_cost:,.0f}",
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


def render_campaign_explained(found: CampaignExplained, console: Console) -> None:
    """Draw the reasons, each with what to do, and of a run what it measured and its attempts."""
    console.print(f"{found.kind} {found.subject} is {found.state}")
    for each in found.reasons:
        console.print(visible(_reason(each)), soft_wrap=True)
        if each.remedy:
            console.print(visible(f"  what to do: {each.remedy}"), soft_wrap=True)
    if not found.reasons:
        console.print("no failures, no flags, and no run waits for a reason of its own")
    if found.run is not None:
        console.print()
        render_run(found.run, console)


def _reason(each: Reason) -> str:
    runs = f"{each.first_run_id}" + (f" and {each.runs - 1:,} more" if each.runs > 1 else "")
    verb = {"waits": "waiting", "failed": "failed", "flag": "flagged"}[each.what]
    effect = ", invalidates the run" if each.invalidates else ""
    return f"{runs} {verb} [{each.code}{effect}]: {each.detail}"
