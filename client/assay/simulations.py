"""Selected launches simulated on designs of a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import ValidationError

from assay import frames
from assay.display import page, table
from assay.plots import Plot
from assay_client.files import AnyPath, write_atomically
from assay_sampling.documents.base import plain
from assay_sampling.documents.designs import DesignEntry, DesignLaunch, DesignsDocument, SpeedupEntry
from assay_sampling.errors import InputError
from assay_sampling.files.reading import reading
from assay_sampling.notes.registry import note_text

if TYPE_CHECKING:
    import pandas as pd

_DESIGN = pa.schema(
    [
        ("design", pa.string()),
        *((name, pa.int64()) for name in ("simulated", "failed", "projected")),
        *(
            (name, pa.float64())
            for name in (
                "cycles", "active_cycles", "ipc", "l2_accesses", "l2_miss_percent", "dram_reads",
                "dram_writes", "cpu_seconds", "whole_cpu_seconds",
            )
        ),
        *((name, pa.float64()) for name in ("speedup", "speedup_low", "speedup_high", "not_vouched_percent")),
    ]
)  # fmt: skip
_SHOWN = ("design", "simulated", "cycles", "ipc", "speedup", "speedup_low", "speedup_high")


class Simulation:
    """Representatives simulated on designs of a GPU, their weighted totals, and the speedups of designs.

    Made by :meth:`assay.Selection.simulate`, or read with :meth:`read` from what ``assay simulate
    --document`` wrote.
    """

    def __init__(self, document: DesignsDocument) -> None:
        self._document = document

    @classmethod
    def read(cls, path: AnyPath) -> Simulation:
        """Read the JSON file of ``assay simulate``; raises InputError for a file that is not one."""
        file = Path(path)
        with reading(file):
            text = file.read_bytes()
        try:
            return cls(DesignsDocument.model_validate(json.loads(text)))
        except (ValueError, RecursionError) as error:
            why = (
                f"{error.error_count()} keys are wrong" if isinstance(error, ValidationError) else str(error)
            )
            raise InputError(
                file,
                f"it is not what 'assay simulate' wrote ({why})",
                "name a file of 'assay simulate --document FILE'",
            ) from error

    @property
    def designs(self) -> tuple[str, ...]:
        """The designs; speedups are over the first."""
        return tuple(each.name for each in self._document.designs)

    @property
    def failures(self) -> tuple[str, ...]:
        """Launches that a simulator did not simulate: design, launch, failure class and cause."""
        return tuple(
            f"{each.design}, launch {each.sim_id}: {each.kind}: {each.cause}"
            for each in self._document.failures
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What is doubtful in these numbers, in words."""
        return tuple(note_text(each.to_dict()) for each in self._document.notes)

    def cycles(self, design: str) -> float | None:
        """Sum of weight x cycles on a design; None until all of its launches are simulated.

        Raises KeyError for a design that was not simulated.
        """
        return self._design(design).cycles

    def speedup(self, design: str) -> float | None:
        """Cycles of the first design / cycles of this one; None where not all launches are simulated."""
        entry = self._speedup(design)
        return None if entry is None else entry.speedup

    def interval(self, design: str) -> tuple[float, float] | None:
        """The interval of the speedup, of the draw of launches alone; None where nothing vouches for one."""
        entry = self._speedup(design)
        if entry is None or entry.interval is None:
            return None
        return entry.interval.low, entry.interval.high

    def to_dict(self) -> dict[str, Any]:
        """The document of ``assay simulate --json``."""
        return self._document.to_dict()

    def to_arrow(self) -> pa.Table:
        """A row for each design: weighted totals, CPU seconds, and the speedup over the first with its
        interval."""
        return pa.Table.from_pylist([self._row(each) for each in self._document.designs], _DESIGN)

    def to_pandas(self) -> pd.DataFrame:
        """As :meth:`to_arrow`."""
        return frames.to_frame(self.to_arrow())

    def launches(self) -> pa.Table:
        """A row for each design and representative that is simulated: weight, cycles, instructions, caches
        and memory, and what it cost."""
        rows = [each.to_dict() for each in self._document.launches]
        return pa.table({name: pa.array([row[name] for row in rows]) for name in DesignLaunch.model_fields})

    def plot(self) -> Plot:
        """The speedup of each design over the first, with its interval."""
        from assay_report.figures.kinds.designs import of_designs  # noqa: PLC0415 - only if asked for

        return Plot(of_designs(self._document))

    def write(self, path: AnyPath) -> None:
        """Write the document, which :meth:`read` reads."""
        text = json.dumps(plain(self.to_dict()), indent=2, allow_nan=False)
        write_atomically(Path(path), text + "\n")

    def _design(self, name: str) -> DesignEntry:
        for each in self._document.designs:
            if each.name == name:
                return each
        raise KeyError(f"there is no design {name!r}; there are {', '.join(self.designs)}")

    def _speedup(self, name: str) -> SpeedupEntry | None:
        self._design(name)
        return next((each for each in self._document.speedups if each.design == name), None)

    def _row(self, design: DesignEntry) -> dict[str, Any]:
        speedup, interval = self._speedup(design.name), self.interval(design.name)
        return {
            **design.to_dict(),
            "design": design.name,
            "speedup": None if speedup is None else speedup.speedup,
            "speedup_low": None if interval is None else interval[0],
            "speedup_high": None if interval is None else interval[1],
            "not_vouched_percent": None if speedup is None else speedup.not_vouched_percent,
        }

    def _facts(self) -> list[tuple[str, object]]:
        document = self._document
        return [
            ("workload", document.workload),
            ("method", document.selection.method),
            ("warm-up", document.warm_up),
            ("stop", document.stop),
            ("simulator", document.simulator),
            *(("failed", text) for text in self.failures),
            *(("note", text) for text in self.notes),
        ]

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}: {value}" for name, value in self._facts() if value)
        return f"Simulation(designs: {', '.join(self.designs)}, {facts})"

    def _repr_html_(self) -> str:
        rows = self.to_arrow().select(_SHOWN).to_pylist()
        return page("Simulation", self._facts(), table(_SHOWN, [tuple(row.values()) for row in rows]))
