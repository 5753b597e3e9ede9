"""What is doubtful in a campaign that is valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.text import printable

_MOST = 10


def render_warnings(warnings: Sequence[Mapping[str, Any]], console: Console) -> None:
    """A paragraph each, with file, line and field; the first ten."""
    if not warnings:
        return
    console.print(f"\nwarnings ({len(warnings):,}); the campaign is valid, but", soft_wrap=True)
    for told in warnings[:_MOST]:
        place = f"{told['file']}:{told['line']}: field {told['field']}"
        console.print(printable(f"  {place}: {told['cause']}; {told['remedy']}"), soft_wrap=True)
    if len(warnings) > _MOST:
        console.print(f"  and {len(warnings) - _MOST:,} more; --json has them all")
