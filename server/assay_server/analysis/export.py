"""Selections in a report: complete, so that people can export them, but never huge."""

from __future__ import annotations

from dataclasses import replace

from assay_sampling.documents.base import plain
from assay_sampling.documents.common import NoteEntry
from assay_sampling.documents.selection import SelectionInReport
from assay_sampling.notes.registry import make_note
from assay_sampling.scoring.selection import Selection

MOST_REPRESENTATIVES = 2000


def exported(selection: Selection, most_representatives: int = MOST_REPRESENTATIVES) -> SelectionInReport:
    """The selection's document, without groups if there are too many representatives.

    A note in the document then says that the same runs can make the selection again.
    """
    representatives = len(selection.representatives.row)
    if representatives <= most_representatives:
        return _in_report(selection)
    nothing = selection.representatives.row[:0]
    shortened = replace(
        selection,
        representatives=replace(
            selection.representatives,
            row=nothing, group=nothing, weight=nothing, process=nothing, launch=nothing, kernel=(),
        ),
        group_launches=nothing,
        operations=None
        if selection.operations is None
        else replace(selection.operations, rows=nothing),
        instruction_share=None,
    )  # fmt: skip
    note = make_note("groups_left_out", representatives=representatives, most=most_representatives)
    document = _in_report(shortened)
    document.groups_left_out, document.note = len(selection.group_launches), NoteEntry.of(note)
    return document


def _in_report(selection: Selection) -> SelectionInReport:
    return SelectionInReport.model_validate(plain(selection.document().to_dict()))
