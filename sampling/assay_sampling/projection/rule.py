"""The parts that all rules of projection within a launch share: the size of a launch, parameters, the stop.

docs/methods/projection.md describes the rules. Every rule sees one sample after the other and nothing later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.notes.registry import Note
from assay_sampling.parameters import Parameters
from assay_sampling.projection.stability import Signal, Spread

RuleName = Literal["artifact", "paper", "instructions", "waves"]
ThresholdName = Literal["s", "tolerance_percent"]


class ProjectionParameters(Parameters):
    """``rule`` None is chosen for each launch: :func:`assay_sampling.projection.rules.rule_of`.

    Of the rules that wait until the IPC settles: ``window_cycles`` is the length of the window, ``s`` the
    spread of the IPC in it below which it is stable, in percent of the mean (``spread="absolute"``: in IPC)
    of the IPC since the start (``signal="instantaneous"``: per interval). Of the rule ``waves``:
    ``tolerance_percent`` is what its estimates may differ by.
    """

    rule: RuleName | None = None
    window_cycles: float = Field(default=3000.0, gt=0)
    s: float = Field(default=0.25, gt=0)
    signal: Signal = "cumulative"
    spread: Spread = "percent"
    tolerance_percent: float = Field(default=12.0, gt=0)


@dataclass(frozen=True)
class LaunchSize:
    """The size of a launch, known before it is simulated.

    ``wave_ctas`` are the blocks that fill the GPU once (of an SM times the SMs); ``total_instructions`` are
    thread instructions, from the trace or the profiler (None: unknown); ``launch_latency_cycles`` are those
    in which the simulator executes nothing (None: the samples without instructions at the start).
    ``end_share`` is how much longer the launch takes because slots stay empty at its end
    (:func:`assay_sampling.projection.launch_end.end_share`), None where its warps are not known.
    """

    wave_ctas: int
    total_ctas: int
    total_instructions: float | None = None
    launch_latency_cycles: float | None = None
    end_share: float | None = None

    def __post_init__(self) -> None:
        for name in ("wave_ctas", "total_ctas"):
            if getattr(self, name) < 1:
                raise ParameterError(name, f"{getattr(self, name)} is not at least 1")

    @property
    def fills_no_wave(self) -> bool:
        return self.wave_ctas > self.total_ctas


@dataclass(frozen=True)
class Stop:
    """Where a rule stops: 0-based sample, cycles and instructions so far, blocks that count as finished
    there, and the projection. ``window_ipc`` is the IPC of the window before it, ``window_samples`` how many
    samples it has."""

    sample_index: int
    cycles: float
    instructions: float
    finished_ctas: float
    projected_cycles: float
    window_ipc: float
    window_samples: int


class StopRule:
    """Base of the rules: counts samples and finished blocks; :meth:`push` may be called until it stops.

    ``name`` is what people type; ``threshold_name`` the parameter that says how alike is alike enough;
    ``extrapolates_window`` says that the rest of the launch is assumed to continue as in the window, rather
    than as since the start.
    """

    name: RuleName
    threshold_name: ThresholdName = "s"
    extrapolates_window = False

    def __init__(self, size: LaunchSize) -> None:
        self.size = size
        self.samples = 0
        self.finished_ctas = 0.0

    def push(self, cycles: float, instructions: float, ctas: float) -> Stop | None:
        """The next sample: cycles and instructions since the start, blocks completed in the interval."""
        raise NotImplementedError

    def why_not(self) -> Note:
        """Why the rule has not stopped so far."""
        raise NotImplementedError

    @property
    def least_threshold(self) -> float | None:
        """Above this threshold the rule would have stopped on the samples so far; None: at no threshold."""
        raise NotImplementedError

    def instructions_left(self, instructions: float) -> float:
        """Thread instructions that the launch has yet to execute; raises RefusedError if there are too many.

        The total must be known.
        """
        total = self.size.total_instructions
        assert total is not None
        if instructions > total * (1 + 1e-9):
            raise RefusedError(
                "total_instructions",
                f"the launch has executed {instructions:,.0f} thread instructions of {total:,.0f}",
                "give the thread instructions of this launch, all of them",
            )
        return max(total - instructions, 0.0)


def require_instructions(size: LaunchSize, name: RuleName) -> None:
    """Raises ParameterError if the total of thread instructions, which the rule needs, is not known."""
    if size.total_instructions is None:
        raise ParameterError(
            "rule",
            f"the rule {name!r} needs the launch's total of thread instructions",
            "give total_instructions, or choose the rule 'paper'",
        )
