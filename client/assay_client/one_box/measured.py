"""What was measured of a command: where its time goes, its selection as a file, and its recordings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay_client.files import write_atomically
from assay_client.remote.outcome import Outcome
from assay_sampling.documents.base import plain
from assay_sampling.launches.table import BASELINE, Condition
from assay_sampling.readers.inspection.top import Top, top_by_time

if TYPE_CHECKING:
    from assay_report.model.report import Report

PublishedFiles = Callable[[str], Sequence[Path]]


@dataclass(frozen=True)
class Measured:
    """What was measured of a command.

    Args:
        top: kernels and operators of the light run with the most time; None: no light run succeeded.
        selection: the file of the selection to take; None if no method gave one.
        light: files of the light run under the baseline.
        detailed: files of the run with the counters of features under the baseline.
    """

    top: Top | None
    selection: Path | None
    light: tuple[Path, ...]
    detailed: tuple[Path, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "top": None if self.top is None else asdict(self.top),
            "selection": None if self.selection is None else str(self.selection),
            "recordings": {
                "light": [str(path) for path in self.light],
                "detailed": [str(path) for path in self.detailed],
            },
        }


def measured_command(outcome: Outcome, published: PublishedFiles, *, private: bool) -> Measured:
    """Look at the runs of a command's campaign, and write the selection to take next to its report.

    ``published`` gives the files of a run. Raises InputError for a damaged one, StorageError.
    """
    light, detailed = _files(outcome, "light", published), _files(outcome, "detailed", published)
    selection = None
    if outcome.report is not None:
        selection = _selection_file(outcome.report, outcome.files["json"].parent, private=private)
    return Measured(top_by_time(light) if light else None, selection, light, detailed)


def _files(outcome: Outcome, level: str, published: PublishedFiles) -> tuple[Path, ...]:
    """The files of a run of a level under the baseline that is done.

    Of light runs the first: with a share of the SMs there is another, under MPS. Of runs with counters the
    last, that of features.
    """
    runs = [run for run in outcome.status["runs"] if run["level"] == level and run["state"] == "done"]
    of_baseline = [run["run_id"] for run in runs if _is_baseline(run["condition"])]
    return tuple(published(of_baseline[0 if level == "light" else -1])) if of_baseline else ()


def _is_baseline(condition: Mapping[str, Any]) -> bool:
    return Condition(condition["cache"], condition["clock"], condition["sm_percent"]) == BASELINE


def _selection_file(report: Report, folder: Path, *, private: bool) -> Path | None:
    """Write the selection of the method to take; None: no method gave one."""
    named = [each.selection for each in report.recommendations]
    named += [each.selection for each in report.summary]
    selections = report.to_document()["selections"]
    document = next((selections[name] for name in named if name in selections), None)
    if document is None:
        return None
    path = folder / "selection.json"
    write_atomically(path, json.dumps(plain(document), allow_nan=False) + "\n", private=private)
    return path
