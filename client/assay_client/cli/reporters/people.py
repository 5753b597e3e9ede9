"""Draws what admins see of people: the audit log, budgets, and a changed role."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import Table
from assay_sampling.visible import visible


def render_audit(document: Mapping[str, Any], console: Console) -> None:
    """One line for each changing call, newest first."""
    if not document["entries"]:
        console.print("no entries")
        return
    drawn = Table(
        "Audit log",
        ["at", "who", "role", "from", "call", "about", "outcome", "detail"],
        spare=["from", "role"],
    )
    for entry in document["entries"]:
        drawn.add_row(
            entry["at"][:19],
            entry["name"] or "?",
            entry["role"],
            entry["address"],
            entry["call"],
            entry["subject"],
            entry["outcome"],
            entry["detail"],
        )
    drawn.print(console)
    if document["more"]:
        console.print("there are older entries: give a larger --most, or --since")


def render_budgets(document: Mapping[str, Any], console: Console) -> None:
    """One line for each person."""
    if not document["people"]:
        console.print("no people have joined; users of the server's socket have no budget")
        return
    drawn = Table(
        f"GPU hours in {document['days']} days", ["person", "role", "project", "used", "budget", "of", "left"]
    )
    for one in document["people"]:
        budget, rest = one["gpu_hours"], one["left_gpu_hours"]
        drawn.add_row(
            one["name"],
            one["role"],
            one["project"],
            f"{one['used_gpu_hours']:,.2f}",
            "no limit" if budget is None else f"{budget:,g}",
            "" if budget is None else "the server" if one["own_gpu_hours"] is None else "their own",
            "" if rest is None else f"{rest:,.2f}",
        )
    drawn.print(console)


def render_role(now: Mapping[str, Any], console: Console) -> None:
    """Who has which role now."""
    project = f", project {now['project']}" if now["project"] else ""
    console.print(visible(f"{now['name']} ({now['identity_id']}): {now['role']}{project}"), soft_wrap=True)
