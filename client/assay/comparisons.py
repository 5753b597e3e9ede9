"""All selection methods on one profile, scored alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from assay import frames
from assay.display import page, table
from assay.plots import Plot
from assay_sampling.notes.registry import note_text
from assay_sampling.verdicts.sentences import sentence_of_verdict
from assay_sampling.verdicts.verdict import verdict_from

if TYPE_CHECKING:
    import pandas as pd

_TEXTS = ("method", "status", "reason")
_COUNTS = ("groups", "launches_to_simulate")
_SCORES = (
    "error_percent", "signed_error_percent", "group_error_percent", "speedup", "speedup_instructions",
    "speedup_launches", "weighted_cov_percent",
)  # fmt: skip
_FAIR = ("error_percent", "speedup", "coverage_percent")
_ON = ("error_percent", "signed_error_percent", "group_error_percent", "part_error_percent", "speedup")
_ELSEWHERE = pa.schema(
    {
        "method": pa.string(), "weights": pa.string(), "on": pa.string(), "speedup": pa.float64(),
        "draws": pa.int64(), "error_percent": pa.float64(), "part_error_percent": pa.float64(),
        "mean_signed_error_percent": pa.float64(), "star": pa.bool_(),
    }
)  # fmt: skip
_COST = ("total", "projected")
_SHOWN = ("method", "status", "launches_to_simulate", "fair_error_percent", "fair_speedup", "star", "reason")


class Comparison:
    """Every selection method on one profile: its scores, or why it does not apply."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = dict(document)

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of all compared methods, in order."""
        return tuple(entry["method"] for entry in self._document["methods"])

    @property
    def unit(self) -> str:
        """What was selected: ``launch`` or ``operation``."""
        return str(self._document.get("unit", "launch"))

    @property
    def recommended(self) -> str | None:
        """The method to take here; None if none can be recommended."""
        method: str | None = self._document["recommendation"]["method"]
        return method

    @property
    def reason(self) -> str:
        """Why that method is recommended, or why none is."""
        return note_text(self._document["recommendation"]["reason"])

    @property
    def verdict(self) -> str | None:
        """Whether to trust the recommended method, in one sentence; None if none is recommended."""
        entry = self._document["verdict"]
        if entry is None:
            return None
        return sentence_of_verdict(verdict_from(entry), self._document.get("unit", "launch"))

    def __len__(self) -> int:
        return len(self.methods)

    def to_dict(self) -> dict[str, Any]:
        """The document of ``assay compare --json``; docs/evaluation-format.md."""
        return dict(self._document)

    def to_arrow(self) -> pa.Table:
        """A row a method: ``status`` (``ok``, ``refused``, ``failed``) with the ``reason``, its scores, its
        fair scores (``fair_``), its cost (``cost_``), and ``star``: no other beats it. Null: no score.

        Compared with ``on``, the worst scores of its selection over the other GPUs, too (``on_``; the signed
        error is the one farthest from 0), and ``star`` is by them (:meth:`elsewhere`). By operation
        ``launches_to_simulate`` counts operations."""
        entries = self._document["methods"]
        columns = {name: pa.array([each[name] for each in entries], pa.string()) for name in _TEXTS}
        columns |= {name: pa.array([each[name] for each in entries], pa.int64()) for name in _COUNTS}
        columns |= {name: pa.array([each[name] for each in entries], pa.float64()) for name in _SCORES}
        for part, names, kind in (
            ("cost", ("quantity", "unit"), pa.string()),
            ("cost", _COST, pa.float64()),
            ("fair", ("basis",), pa.string()),
            ("fair", ("trials",), pa.int64()),
            ("fair", _FAIR, pa.float64()),
        ):
            columns |= {
                f"{part}_{name}": pa.array([(each[part] or {}).get(name) for each in entries], kind)
                for name in names
            }
        if "on" in self._document:
            there = [_worst(each.get("on") or ()) for each in entries]
            columns |= {
                f"on_{name}": pa.array([each.get(name) for each in there], pa.float64()) for name in _ON
            }
        columns["star"] = pa.array([each["pareto"] for each in entries], pa.bool_())
        return pa.table(columns)

    def elsewhere(self) -> pa.Table:
        """A row a method, kind of weights and other GPU, at the one ``speedup`` that methods are compared at:
        ``error_percent`` and ``part_error_percent`` (by kernel and grid), root mean squares over ``draws``,
        and ``star``. Without rows where no other GPU was scored."""
        part = self._document.get("at_speedup") or {"rows": (), "targets": ()}
        rows = [
            {
                **{name: row[name] for name in ("method", "weights", "speedup", "draws", "star")},
                "on": target,
                **scores,
            }
            for row in part["rows"]
            for target, scores in zip(part["targets"], row["targets"], strict=False)
        ]
        return pa.Table.from_pylist(rows, schema=_ELSEWHERE)

    def to_pandas(self) -> pd.DataFrame:
        """As :meth:`to_arrow`."""
        return frames.to_frame(self.to_arrow())

    def plot(self) -> Plot:
        """Fair error against fair speedup of each method, with those that no other beats; where other GPUs
        were scored, the worst errors there."""
        from assay_report.figures.kinds.pareto import of_comparison  # noqa: PLC0415 - only if it is asked for

        return Plot(of_comparison(self._document))

    def __repr__(self) -> str:
        first = f"{self.verdict} " if self.verdict else ""
        return f"{first}Comparison({len(self)} methods, recommended: {self.recommended or 'none'})"

    def _repr_html_(self) -> str:
        columns = self.to_arrow().select(_SHOWN).to_pydict()
        profile = self._document["profile"]
        facts = [
            ("launches", f"{profile['launches']:,}"),
            ("from", ", ".join(profile["sources"])),
            ("origin", profile["origin"]),
            ("recommended", self.recommended or "none"),
            ("because", self.reason),
        ]
        rows = list(zip(*columns.values(), strict=True))
        return page("Comparison", facts, table(_SHOWN, rows, most=len(rows)), lead=self.verdict or "")


def _worst(scores: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The worst of each score over the GPUs that were scored."""
    valid = [each for each in scores if each["status"] == "ok"]
    if not valid:
        return {}
    return {
        "error_percent": max(each["error_percent"] for each in valid),
        "signed_error_percent": max((each["signed_error_percent"] for each in valid), key=abs),
        **{
            name: None if any(each[name] is None for each in valid) else max(each[name] for each in valid)
            for name in ("group_error_percent", "part_error_percent")
        },
        "speedup": min(each["speedup"] for each in valid),
    }
