"""A selection: launches that stand for a workload, with weights and scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa

from assay import frames
from assay.display import page, table
from assay.evaluations import Evaluation, RelativeEvaluation
from assay.plots import Plot
from assay.recorded import Recording, levels_of
from assay.simulations import Simulation
from assay_client.files import AnyPath, write_atomically
from assay_client.recordings.analyses import (
    evaluate_profile,
    evaluate_relative_profiles,
    load_selection,
)
from assay_sampling.documents.base import plain
from assay_sampling.documents.designs import EarlyStop, WarmUp
from assay_sampling.documents.selection import SelectionDocument
from assay_sampling.errors import ParameterError
from assay_sampling.launches.alignment import MatchKind
from assay_sampling.launches.profile import Profile as Levels
from assay_sampling.notes.registry import note_text
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.saved.verdict_facts import verdict_of_selection
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import Selection as MadeSelection
from assay_sampling.verdicts.sentences import sentence_of_verdict

if TYPE_CHECKING:
    import pandas as pd

SelectionFigure = Literal["launches", "groups", "tiers"]
# The columns of `assay select -o FILE.csv`, in its order.
_AXES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
_COLUMNS = pa.schema(
    [
        ("group", pa.int64()),
        ("group_launches", pa.int64()),
        ("process", pa.int64()),
        ("launch", pa.int64()),
        ("sim_id", pa.int64()),
        ("kernel", pa.string()),
        *((axis, pa.int64()) for axis in _AXES),
        ("weight", pa.float64()),
        ("light_time_weight", pa.float64()),
    ]
)


class Selection:
    """Launches that stand for a workload: groups, representatives, weights, and scores on their own profile.

    Made by :meth:`assay.Profile.select`, or read with :meth:`read` from what ``assay select -o`` wrote.
    """

    def __init__(
        self, made: MadeSelection | SelectionDocument | SavedSelection, levels: Levels | None = None
    ) -> None:
        saved = made if isinstance(made, SavedSelection) else load_selection(made)
        self._saved = saved
        self._document = saved.document
        self._levels = levels

    @classmethod
    def read(cls, path: AnyPath) -> Selection:
        """Read the JSON file of a selection; raises InputError for a file that is not one."""
        return cls(load_selection(path))

    @property
    def method(self) -> str:
        return self._document.method

    @property
    def parameters(self) -> dict[str, Any]:
        """Every parameter of the method with its value, defaults included."""
        return dict(self._document.parameters)

    @property
    def seed(self) -> int:
        return self._document.seed

    @property
    def groups(self) -> int:
        """Groups of launches or operations."""
        return len(self._document.groups)

    @property
    def unit(self) -> str:
        """What the groups divide: ``launch`` or ``operation``."""
        return self._document.unit

    @property
    def representatives(self) -> int:
        """Launches to simulate; by operation, operations, each of which has launches."""
        return len(self._saved.launch)

    def __len__(self) -> int:
        return self.representatives

    @property
    def error_percent(self) -> float | None:
        """100 |projected - total| / total, on the profile that it was made on."""
        return self._document.error_percent

    @property
    def group_error_percent(self) -> float | None:
        """The error over groups, so that errors do not cancel."""
        return self._document.group_error_percent

    @property
    def speedup(self) -> float | None:
        """Cost of all launches / cost of the representatives."""
        return self._document.speedup

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the projected total, in the unit of the cost; None if the method gives none."""
        bounds = self._document.interval
        return None if bounds is None else (bounds.low, bounds.high)

    @property
    def verdict(self) -> str:
        """Whether to trust it on another GPU, in one sentence; ``to_dict()["verdict"]`` has its numbers."""
        return sentence_of_verdict(verdict_of_selection(self._document), self._document.unit)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons against this selection, and doubts about its scores, in words."""
        document = self.to_dict()
        return tuple(note_text(each) for each in (*document.get("warnings", ()), *document["score_notes"]))

    def labels(self) -> np.ndarray | None:
        """The group of every launch or operation, shape (n,), in the order of (process, first launch).

        None if the selection was saved without them.
        """
        return self._saved.labels()

    def to_dict(self) -> dict[str, Any]:
        """The document of ``assay select --json``; docs/selection-format.md."""
        return self._document.to_dict()

    def to_arrow(self) -> pa.Table:
        """A row a representative, by operation one a launch of it, as ``assay select -o FILE.csv`` has them.

        By operation a column ``operation`` has its name and input shapes.
        """
        rows = [
            {
                "group": group.id,
                "group_launches": group.launches,
                **dict(zip(_AXES, (*one.grid, *one.block), strict=True)),
                **{name: getattr(one, name) for name in ("launch", "sim_id", "kernel")},
                **{name: getattr(each, name) for name in ("process", "weight", "light_time_weight")},
            }
            for group in self._document.groups
            for each in group.representatives
            for one in ([each] if each.operation is None else each.operation.launches)
        ]
        representatives = pa.Table.from_pylist(rows, schema=_COLUMNS)
        labels = self._saved.operation_labels()
        if not labels:
            return representatives
        return representatives.append_column("operation", pa.array(labels, pa.string()))

    def to_pandas(self) -> pd.DataFrame:
        """As :meth:`to_arrow`."""
        return frames.to_frame(self.to_arrow())

    def write(self, path: AnyPath) -> None:
        """Write it to a ``.json`` file, which ``assay evaluate`` and ``export`` read.

        Raises ParameterError for another ending, StorageError if the disk refuses.
        """
        target = Path(path)
        if target.suffix != ".json":
            raise ParameterError(
                "path", f"{target} does not end in .json", "write other forms with to_pandas() or to_arrow()"
            )
        text = json.dumps(plain(self.to_dict()), indent=2, allow_nan=False)
        write_atomically(target, text + "\n")

    def evaluate(
        self,
        recording: Recording,
        *,
        cost: str | None = None,
        weights: WeightKind | None = None,
        scales_at_most: float | None = None,
    ) -> Evaluation:
        """Score it with unchanged weights on a recording of the same launches or operations.

        As ``assay evaluate``.

        Args:
            recording: a profile, or the files of one, for example of another GPU.
            cost: score in this cost instead of the selection's: ``duration_ns``, ``cycles_gpc_avg``, ...
            weights: ``launches``, ``instructions`` or ``light_time``; None: by light time on another GPU.
            scales_at_most: no launch scales more than so many times as its kernel does, the assumption of the
                interval; None: 3.

        Raises MisalignedError if the recording does not hold the same launches or operations.
        """
        evaluation = evaluate_profile(
            self._document,
            levels_of(recording),
            quantity=cost,
            weights=weights,
            scales_at_most=scales_at_most,
        )
        return Evaluation(evaluation)

    def evaluate_speedup(
        self,
        first: Recording,
        second: Recording,
        *,
        cost: str | None = None,
        weights: WeightKind | None = None,
        scales_at_most: float | None = None,
    ) -> RelativeEvaluation:
        """How well it predicts the speedup of ``second`` over ``first``; ``assay evaluate`` with two files.

        Raises MisalignedError if one does not hold the same launches, NotJoinableError if both are one.
        """
        one, other = levels_of(first), levels_of(second)
        return RelativeEvaluation(
            evaluate_relative_profiles(
                self._document, one, other, quantity=cost, weights=weights, scales_at_most=scales_at_most
            )
        )

    def simulate(
        self,
        traces: AnyPath,
        accel_sim: AnyPath,
        designs: Mapping[str, str],
        *,
        output: AnyPath = "sim",
        warm_up: WarmUp = "none",
        stop: EarlyStop = "none",
        jobs: int | None = None,
        workers: str | None = None,
        weights: WeightKind | None = None,
        match: MatchKind = "exact",
        force: bool = False,
        recording: AnyPath | None = None,
    ) -> Simulation:
        """Simulate the representatives with Accel-Sim, a process each; called again, it goes on.

        As ``assay simulate``.

        Args:
            traces: the folder of Accel-Sim's traces, or the list in it.
            accel_sim: where Accel-Sim was built.
            designs: by name ``CONFIG`` or ``CONFIG:OPTIONS``, as after ``--design NAME=``; speedups are over
                the first.
            output: the folder of the simulations.
            warm_up: what is replayed before each: ``none``, ``tail`` (memory instructions of the last 160
                blocks of the launch before) or ``whole``.
            stop: the rule of projection that ends simulations early; ``none``: they are simulated whole.
            jobs: processes at a time on this machine; None: a core each.
            workers: ``dask://HOST:PORT`` of the Dask scheduler whose workers simulate; None: none.
            weights: ``launches``, ``instructions`` or ``light_time``; None: the selection's own.
            match: how closely traces must be the selected launches: ``exact`` or ``name_block``.
            force: simulate anew what was simulated with another simulator, configuration or trace.
            recording: that the selection was made on; if the tracer missed launches, it tells which.

        Raises ParameterError for a simulator or design that is not there, MisalignedError for traces of other
        launches, RefusedError for a folder of other simulations, StorageError for a full disk. Launches that
        fail do not raise: ``failures`` has them.
        """
        from assay_client.simulating.selections import (  # noqa: PLC0415 - only if asked for
            Follower,
            SimulateRequest,
            simulate_selection,
        )

        request = SimulateRequest(
            selection=self._saved,
            selection_file=Path("selection"),
            traces=Path(traces),
            accel_sim=Path(accel_sim),
            designs=[f"{name}={design}" for name, design in designs.items()],
            output=Path(output),
            warm_up=warm_up,
            stop=stop,
            jobs=jobs,
            workers=workers,
            weights=weights,
            match=match,
            force=force,
            recording=None if recording is None else Path(recording),
        )
        return Simulation(simulate_selection(request, Follower()))

    def plot(self, kind: SelectionFigure = "launches", *, recording: Recording | None = None) -> Plot:
        """Draw it as ``assay select --plot``: docs/figures.md.

        Args:
            kind: ``launches`` in order, with a lane for each group; ``groups``: the kernels in each group;
                ``tiers`` of Sieve.
            recording: the launches to draw, of the selection's own GPU or of another one; None: the profile
                that it was made from. A selection that was read from a file needs one, except for ``tiers``.

        Raises ParameterError for another kind and for a missing recording, MisalignedError if the recording
        does not hold the same launches.
        """
        from assay_client.recordings.figures import of_saved  # noqa: PLC0415 - only if it is asked for
        from assay_report.figures.kinds.tiers import of_selection as of_tiers  # noqa: PLC0415

        if kind not in get_args(SelectionFigure):
            words = ", ".join(get_args(SelectionFigure))
            raise ParameterError("kind", f"there is no figure {kind!r} of a selection", f"use one of {words}")
        if kind == "tiers":
            return Plot(of_tiers(self.to_dict()))
        levels = self._levels if recording is None else levels_of(recording)
        if levels is None:
            raise ParameterError(
                "recording",
                "the selection was read from a file, which does not hold the launches to draw",
                'name a recording of them: plot(recording="window.csv")',
            )
        return Plot(of_saved(self._saved, levels, kind))

    def _facts(self) -> list[tuple[str, object]]:
        cost = self._document.cost
        return [
            ("method", f"{self.method}, seed {self.seed}"),
            *self._amounts(),
            ("groups", f"{self.groups:,}"),
            ("error", None if self.error_percent is None else f"{self.error_percent:.2f} %"),
            ("speedup", None if self.speedup is None else f"{self.speedup:,.1f} x"),
            ("cost", None if cost is None else f"{cost.quantity} in {cost.unit}"),
            ("origin", self._document.profile.origin),
            *(("warning", text) for text in self.warnings),
        ]

    def _amounts(self) -> list[tuple[str, object]]:
        launches, operations = self._document.profile.launches, self._document.operations
        if operations is None:
            return [("launches to simulate", f"{self.representatives:,} of {launches:,}")]
        chosen = len(self._saved.by_launch().launch)
        return [
            ("operations to simulate", f"{self.representatives:,} of {operations.calls:,}"),
            ("launches to simulate", f"{chosen:,} of {launches:,}"),
        ]

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}: {value}" for name, value in self._facts() if value)
        return f"{self.verdict} Selection({facts})"

    def _repr_html_(self) -> str:
        shown = ("group", "group_launches", "sim_id", "kernel", "weight")
        columns = self.to_arrow().select(shown).to_pydict()
        rows = table(shown, list(zip(*columns.values(), strict=True)))
        return page("Selection", self._facts(), rows, lead=self.verdict)
