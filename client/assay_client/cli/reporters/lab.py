"""Draws the lab: its agents, its GPUs, and the queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.estimates import eta_in_words
from assay_client.cli.reporters.tables import Table
from assay_client.cli.reporters.text import clipped, count, counted
from assay_sampling.visible import visible

_GIB = 1 << 30
_HIDDEN = "another project's"


def render_agents(document: Mapping[str, Any], console: Console) -> None:
    """Draw a line for each slot of each agent."""
    if not document["agents"]:
        console.print("no agent has registered; start one with: assay-agent run")
        return
    drawn = Table("Agents", ["agent", "host", "since", "version", "labels", "slot", "health", "runs"])
    for agent in document["agents"]:
        about = (
            agent["name"], agent["host"], _minute(agent["since"]), agent["agent_version"],
            ", ".join(agent["labels"]),
        )  # fmt: skip
        for slot in agent["slots"] or [None]:
            if slot is None:
                drawn.add_row(*about, "-", "no GPU", "")
            else:
                drawn.add_row(*about, clipped(slot["slot"], 20), slot["health"], _runs(slot))
    drawn.print(console)
    for agent in document["agents"]:
        if not agent["slots"] and agent["no_device_reason"]:
            notice = f"agent {agent['name']} offers no GPU: {agent['no_device_reason']}"
            console.print(visible(notice), soft_wrap=True)
        for slot in agent["slots"]:
            if slot["why"]:
                line = f"slot {slot['slot']} of agent {agent['name']} is {slot['health']}: {slot['why']}"
                console.print(visible(line), soft_wrap=True)


def render_gpus(document: Mapping[str, Any], console: Console) -> None:
    """Draw a line for each GPU."""
    if not document["gpus"]:
        console.print("no agent has a GPU")
        return
    drawn = Table(
        "GPUs",
        ["GPU", "agent", "architecture", "SMs", "GiB", "driver", "data", "health", "°C", "W", "runs"],
        right=["SMs", "GiB", "°C", "W"],
    )
    for gpu in document["gpus"]:
        drawn.add_row(
            visible(gpu["name"]),
            visible(gpu["agent"]),
            gpu["compute_capability"] or "-",
            count(gpu["sm_count"]) if gpu["sm_count"] else "-",
            f"{gpu['memory_bytes'] / _GIB:.0f}" if gpu["memory_bytes"] else "-",
            gpu["driver_version"] or "-",
            "synthetic" if gpu["synthetic"] else "measured",
            gpu["health"] or "left out",
            _sensor(gpu, "temperature_celsius"),
            _sensor(gpu, "power_watts"),
            _runs(gpu),
        )
    drawn.print(console)
    for gpu in document["gpus"]:
        if gpu["why"]:
            line = f"{gpu['name']} {gpu['uuid']} of agent {gpu['agent']}: {gpu['why']}"
            console.print(visible(line), soft_wrap=True)


def render_queue(document: Mapping[str, Any], console: Console) -> None:
    """Draw waiting runs, in the order of their campaigns, each with its reason."""
    if not document["queue"]:
        console.print("no run waits")
        return
    for each in document["queue"]:
        runs = counted(each["runs"], "run", "runs")
        whose = f" of {each['owner_name']}" if each["owner_name"] else ""
        line = f"{each['campaign_id'] or _HIDDEN}{whose}: {runs} for {each['device_kind']}"
        line += f", from {each['first_run_id']}" if each["first_run_id"] else ""
        console.print(visible(line), soft_wrap=True)
        console.print(visible(f"  waiting: {each['reason']}"), soft_wrap=True)
        if each["ahead"]:
            names = ", ".join(campaign_id or _HIDDEN for campaign_id in each["ahead"])
            ahead = f"  ahead: {names} ({counted(each['runs_ahead'], 'run', 'runs')})"
            console.print(visible(ahead), soft_wrap=True)
        console.print(visible(f"  done in: {eta_in_words(each['eta'])}"), soft_wrap=True)
    if document["campaigns_left_out"]:
        left_out = counted(document["campaigns_left_out"], "younger campaign", "younger campaigns")
        console.print(f"{left_out} not shown")


def _runs(slot: Mapping[str, Any]) -> str:
    """The run of a slot."""
    return slot["run_id"] or (_HIDDEN if slot["leased_at"] else "")


def _sensor(gpu: Mapping[str, Any], name: str) -> str:
    value = gpu["sensors"] and gpu["sensors"][name]
    return "-" if value is None else f"{value:.0f}"


def _minute(moment: str | None) -> str:
    return moment[:16].replace("T", " ") if moment else "-"
