"""Draws the checks of a machine, one per line, each with its remedy below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from assay_sampling.visible import visible

_WHO = {"client": "a client", "agent": "an agent", "server": "a server", "all": "any program"}


def render_checks(checks: Sequence[Mapping[str, str]], need: str, console: Console) -> None:
    """Draw state, name, finding and remedy of each check, then whether anything needed is missing."""
    width = max(len(check["name"]) for check in checks)
    for check in checks:
        line = f"{check['state']:<8} {check['name']:<{width}}  {visible(check['found'])}"
        console.print(line, soft_wrap=True)
        if check["remedy"]:
            console.print(f"{'':<8} {'':<{width}}  -> {visible(check['remedy'])}", soft_wrap=True)
    if not any(check["state"] == "missing" for check in checks):
        notes = "; notes are for other uses" if any(check["state"] == "note" for check in checks) else ""
        console.print(f"nothing that {_WHO[need]} needs is missing{notes}", soft_wrap=True)
