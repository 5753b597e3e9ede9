"""Selections as a report carries them: whole, so that a person can export them, but never huge."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from assay_sampling.selection import Selection
from assay_server.analysis.rows import plain

MOST_REPRESENTATIVES = 2000


def exported(selection: Selection, most_representatives: int = MOST_REPRESENTATIVES) -> dict[str, Any]:
    """The selection's JSON form; groups are left out where there are too many representatives.

    A note in the document then says so, and that the selection can be made again from the same runs.
    """
    representatives = len(selection.representatives.row)
    if representatives <= most_representatives:
        return dict(plain(selection.to_dict()))
    nothing = selection.representatives.row[:0]
    shortened = replace(
        selection,
        representatives=replace(
            selection.representatives,
            row=nothing, group=nothing, weight=nothing, process=nothing, launch=nothing, kernel=(),
        ),
        group_launches=nothing,
        instruction_share=None,
    )  # fmt: skip
    note = (
        f"{representatives:,} representatives are more than the {most_representatives:,} that a report "
        "carries; make the selection again from the same runs with the same parameters and seed"
    )
    return {**plain(shortened.to_dict()), "groups_left_out": len(selection.group_launches), "note": note}
