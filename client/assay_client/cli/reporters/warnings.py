"""Draws the warnings about a valid campaign, or about the records of one that has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.text import counted
from assay_sampling.visible import visible

_MOST = 10


def render_warnings(warnings: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Draw the first ten warnings, a paragraph each, with file, line and field."""
    if not warnings:
        return
    console.print(f"\nwarnings ({len(warnings):,}); the campaign is valid, but", soft_wrap=True)
    for warning in warnings[:_MOST]:
        place = f"{warning['file']}:{warning['line']}: field {warning['field']}"
        console.print(visible(f"  {place}: {warning['cause']}; {warning['remedy']}"), soft_wrap=True)
    if len(warnings) > _MOST:
        console.print(f"  and {len(warnings) - _MOST:,} more; --json has them all")


def render_changed_records(changed: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Draw the first ten records that changed since the report was made, and what that means."""
    if not changed:
        return
    files = counted(len(changed), "file of records is", "files of records are")
    console.print(f"\nwarning: {files} not what this report was made from:", soft_wrap=True)
    for each in changed[:_MOST]:
        console.print(visible(f"  {each['file']} of run {each['run_id']}: {each['what']}"), soft_wrap=True)
    if len(changed) > _MOST:
        console.print(f"  and {len(changed) - _MOST:,} more")
    console.print(
        "The report stays valid, because it was made from intact files, but it cannot be made again: check "
        "the server's disk, and submit the campaign again.",
        soft_wrap=True,
    )
