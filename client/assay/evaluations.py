"""Scores of a selection on another recording, or between two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from assay import frames
from assay.display import page
from assay.plots import Plot
from assay_sampling.notes.registry import note_text
from assay_sampling.verdicts.sentences import sentence_of_verdict
from assay_sampling.verdicts.verdict import verdict_from

if TYPE_CHECKING:
    import pandas as pd

_SCORES = ("projected", "error_percent", "signed_error_percent", "group_error_percent")
_RELATIVE = ("speedup_predicted", "speedup_error_percent")


class Evaluation:
    """Scores of a selection on a recording of the same launches or operations, with unchanged weights."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = dict(document)

    @property
    def error_percent(self) -> float:
        """100 |projected - total| / total."""
        return float(self._document["error_percent"])

    @property
    def signed_error_percent(self) -> float:
        """The error with its sign."""
        return float(self._document["signed_error_percent"])

    @property
    def group_error_percent(self) -> float | None:
        """The error over groups; None for a selection that was saved without labels."""
        error_percent: float | None = self._document["group_error_percent"]
        return error_percent

    @property
    def speedup(self) -> float:
        """Cost of all launches / cost of the representatives."""
        return float(self._document["speedup"])

    @property
    def total(self) -> float:
        """The true total, in ``unit``."""
        return float(self._document["cost"]["total"])

    @property
    def projected(self) -> float:
        """The projected total, in ``unit``."""
        return float(self._document["cost"]["projected"])

    @property
    def unit(self) -> str:
        """The unit of the cost: ``cycle`` or ``ns``."""
        return str(self._document["cost"]["unit"])

    @property
    def matched_calls_percent(self) -> tuple[float, float] | None:
        """Of a selection by operation: matched calls of the selection's recording, and of this one.

        None for a selection by launch, all of whose launches match.
        """
        return self._matched("calls")

    @property
    def matched_time_percent(self) -> tuple[float, float] | None:
        """As :meth:`matched_calls_percent`, of the time."""
        return self._matched("time")

    def _matched(self, what: str) -> tuple[float, float] | None:
        match = self._document.get("operations")
        if match is None:
            return None
        return float(match[f"selection_{what}_percent"]), float(match[f"recording_{what}_percent"])

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the total on this recording, in ``unit``.

        None for launches that were not drawn at random.
        """
        return _interval(self._document)

    @property
    def verdict(self) -> str:
        """Whether to trust the selection on this recording, in one sentence; ``to_dict()["verdict"]`` has its
        numbers."""
        return sentence_of_verdict(
            verdict_from(self._document["verdict"]), self._document.get("unit", "launch")
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What is doubtful in these scores, in words."""
        return tuple(note_text(each) for each in self._document["notes"])

    def to_dict(self) -> dict[str, Any]:
        """The document of ``assay evaluate --json``; docs/evaluation-format.md."""
        return dict(self._document)

    def to_arrow(self) -> pa.Table:
        """A row for each kind of weights: ``weights``, and the scores."""
        return _by_weights(self._document, _SCORES)

    def to_pandas(self) -> pd.DataFrame:
        """As :meth:`to_arrow`."""
        return frames.to_frame(self.to_arrow())

    def plot(self) -> Plot:
        """Error and speedup on this recording by each kind of weights, and what the interval allows."""
        from assay_report.figures.kinds.elsewhere import of_evaluation  # noqa: PLC0415 - only if asked for

        return Plot(of_evaluation(self._document))

    def _facts(self) -> list[tuple[str, object]]:
        on = self._document["evaluated_on"]
        interval, matched = self.interval, self.matched_time_percent
        return [
            ("method", self._document["method"]),
            ("on", ", ".join(on["devices"])),
            ("from", ", ".join(on["sources"])),
            ("error", f"{self.signed_error_percent:+.2f} %"),
            ("speedup", f"{self.speedup:,.1f} x"),
            ("total", f"{self.total:,.6g} {self.unit}"),
            ("projected", f"{self.projected:,.6g} {self.unit}"),
            ("time matched", None if matched is None else f"{min(matched):.4g} %"),
            ("interval", None if interval is None else f"{interval[0]:,.6g} to {interval[1]:,.6g}"),
            ("origin", on["origin"]),
            *(("note", text) for text in self.notes),
        ]

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}: {value}" for name, value in self._facts() if value)
        return f"{self.verdict} Evaluation({facts})"

    def _repr_html_(self) -> str:
        return page("Evaluation", self._facts(), lead=self.verdict)


class RelativeEvaluation:
    """How well a selection predicts the speedup of one recording over another."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = dict(document)

    @property
    def speedup_true(self) -> float:
        """Cost on the first recording / cost on the second."""
        return float(self._document["speedup_true"])

    @property
    def speedup_predicted(self) -> float:
        """Projected cost on the first recording / projected cost on the second."""
        return float(self._document["speedup_predicted"])

    @property
    def error_percent(self) -> float:
        """100 |predicted - true| / true."""
        return float(self._document["speedup_error_percent"])

    @property
    def first(self) -> Evaluation:
        """The scores on the first recording."""
        return Evaluation(self._document["first"])

    @property
    def second(self) -> Evaluation:
        """The scores on the second recording."""
        return Evaluation(self._document["second"])

    def to_dict(self) -> dict[str, Any]:
        """The document of ``assay evaluate --json`` with two recordings; docs/evaluation-format.md."""
        return dict(self._document)

    def to_arrow(self) -> pa.Table:
        """A row for each kind of weights: ``weights``, and the scores."""
        return _by_weights(self._document, _RELATIVE)

    def to_pandas(self) -> pd.DataFrame:
        """As :meth:`to_arrow`."""
        return frames.to_frame(self.to_arrow())

    def plot(self) -> Plot:
        """The speedup as measured, and as each kind of weights predicts it."""
        from assay_report.figures.kinds.elsewhere import of_speedup  # noqa: PLC0415 - only if asked for

        return Plot(of_speedup(self._document))

    def _facts(self) -> list[tuple[str, object]]:
        return [
            ("method", self._document["method"]),
            ("true speedup", f"{self.speedup_true:,.3f} x"),
            ("predicted speedup", f"{self.speedup_predicted:,.3f} x"),
            ("error", f"{self.error_percent:.2f} %"),
        ]

    def __repr__(self) -> str:
        return f"RelativeEvaluation({', '.join(f'{name}: {value}' for name, value in self._facts())})"

    def _repr_html_(self) -> str:
        return page("Speedup of the second recording over the first", self._facts())


def _interval(document: Mapping[str, Any]) -> tuple[float, float] | None:
    interval = document.get("interval")
    return None if interval is None else (float(interval["low"]), float(interval["high"]))


def _by_weights(document: Mapping[str, Any], names: tuple[str, ...]) -> pa.Table:
    by_kind = document["by_weights"]
    return pa.table(
        {
            "weights": pa.array(list(by_kind), pa.string()),
            **{name: pa.array([each.get(name) for each in by_kind.values()], pa.float64()) for name in names},
        }
    )
