"""Rules of principal kernel projection: when a launch may stop, and its projected cycles.

Source: PKA (MICRO'21) 3.2 and its artifact, which differ: docs/methods/projection.md. Every rule sees one
sample after the other and nothing later.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from pydantic import Field

from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import Parameters
from assay_sampling.projection.stability import LEAST_WINDOW_SAMPLES, Signal, Spread, StabilityDetector

RuleName = Literal["artifact", "paper", "instructions"]
# Share of all blocks that the artifact waits for where the grid does not fill the GPU once.
_ARTIFACT_SUBWAVE_SHARE = 0.3


class ProjectionParameters(Parameters):
    """``rule`` None is "instructions" where the total is known, else "paper". ``window_cycles`` is the
    length of the window, ``s`` the spread of the IPC in it below which it is stable, in percent of the mean
    (``spread="absolute"``: in IPC) of the IPC since the start (``signal="instantaneous"``: per interval).
    """

    rule: RuleName | None = None
    window_cycles: float = Field(default=3000.0, gt=0)
    s: float = Field(default=0.25, gt=0)
    signal: Signal = "cumulative"
    spread: Spread = "percent"


@dataclass(frozen=True)
class LaunchSize:
    """The size of a launch, known before it is simulated.

    ``wave_ctas`` are the blocks that fill the GPU once (of an SM times the SMs); ``total_instructions`` are
    thread instructions, from the trace or the profiler (None: unknown); ``launch_latency_cycles`` are those
    in which the simulator executes nothing (None: the samples without instructions at the start).
    """

    wave_ctas: int
    total_ctas: int
    total_instructions: float | None = None
    launch_latency_cycles: float | None = None

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
    there, and the projection. ``window_ipc`` is the IPC of the window before it."""

    sample_index: int
    cycles: float
    instructions: float
    finished_ctas: float
    projected_cycles: float
    window_ipc: float


class StopRule:
    """Base of the rules: counts samples and finished blocks; :meth:`push` may be called until it stops.

    ``name`` is what people type; ``extrapolates_window`` says that the rest of the launch is assumed to
    continue as in the window, rather than as since the start.
    """

    name: RuleName
    extrapolates_window = False

    def __init__(self, size: LaunchSize, parameters: ProjectionParameters) -> None:
        self.size = size
        self.samples = 0
        self.finished_ctas = 0.0
        self.detector = StabilityDetector(
            parameters.window_cycles,
            parameters.s,
            signal=parameters.signal,
            spread=parameters.spread,
            idle_cycles=self._idle_cycles(),
        )

    def push(self, cycles: float, instructions: float, ctas: float) -> Stop | None:
        """The next sample: cycles and instructions since the start, blocks completed in the interval."""
        stable = self.detector.push(cycles, instructions)
        self._finish(ctas)
        projected = self._projected(cycles, instructions, stable)
        index, self.samples = self.samples, self.samples + 1
        if projected is None:
            return None
        return Stop(index, cycles, instructions, self.finished_ctas, projected, self.detector.window_ipc)

    def why_not(self) -> Note:
        """Why the rule has not stopped so far."""
        if self.samples == 0:
            return make_note("no_sample")
        least, window = self.detector.least_spread, self.detector.window_samples
        if least is None:
            return make_note(
                "window_not_filled",
                samples=self.samples,
                used=self.detector.active_samples,
                window=window or LEAST_WINDOW_SAMPLES,
            )
        if not least < self.detector.threshold:
            return make_note("never_stable", least_spread=least, s=self.detector.threshold)
        return self._why_not_though_stable()

    def _idle_cycles(self) -> float | None:
        return 0.0

    def _finish(self, ctas: float) -> None:
        self.finished_ctas += ctas

    def _projected(self, cycles: float, instructions: float, stable: bool) -> float | None:
        raise NotImplementedError

    def _why_not_though_stable(self) -> Note:
        return make_note(
            "wave_not_finished", finished_blocks=self.finished_ctas, wave_blocks=self.size.wave_ctas
        )

    def _by_instructions(self, cycles: float, instructions: float) -> float | None:
        """The total with the rest at the IPC of the window; None if the window executed nothing."""
        total, ipc = self.size.total_instructions, self.detector.window_ipc
        if total is None or not ipc > 0:
            return None
        if instructions > total * (1 + 1e-9):
            raise RefusedError(
                "total_instructions",
                f"the launch has executed {instructions:,.0f} thread instructions of {total:,.0f}",
                "give the thread instructions of this launch, all of them",
            )
        return cycles + (total - instructions) / ipc


class ArtifactRule(StopRule):
    """The rule of PKA's published script, oddities included, to compare with its numbers.

    The first sample's blocks do not count, those of the current sample not yet; one is added to the
    finished blocks to avoid a division by zero; it stops once both conditions have been met, even at
    different times; a grid below a wave waits for 0.3 of its blocks.
    """

    name = "artifact"

    def __init__(self, size: LaunchSize, parameters: ProjectionParameters) -> None:
        if parameters.signal != "cumulative" or parameters.spread != "percent":
            raise ParameterError(
                "rule", "the artifact's rule knows neither signal nor spread", "leave them out"
            )
        super().__init__(size, parameters)
        self._needed = _ARTIFACT_SUBWAVE_SHARE * size.total_ctas if size.fills_no_wave else size.wave_ctas
        self._was_stable = False
        self._not_yet = 0.0

    def _finish(self, ctas: float) -> None:
        self.finished_ctas += self._not_yet
        self._not_yet = ctas if self.samples else 0.0

    def _projected(self, cycles: float, instructions: float, stable: bool) -> float | None:
        self._was_stable |= stable
        if not self._was_stable or self.finished_ctas < self._needed:
            return None
        return cycles * (self.size.total_ctas / (self.finished_ctas + 1))


class PaperRule(StopRule):
    """The rule of the paper's text: stop at the end of the wave in which the IPC becomes stable, and assume
    that unfinished blocks need as long as the finished ones.

    A grid below a wave stops where the IPC becomes stable; few or none of its blocks have finished then, so
    it is projected by instructions, and does not stop if their total is unknown.
    """

    name = "paper"

    def __init__(self, size: LaunchSize, parameters: ProjectionParameters) -> None:
        super().__init__(size, parameters)
        self._needed: float | None = None

    def _projected(self, cycles: float, instructions: float, stable: bool) -> float | None:
        if self.size.fills_no_wave:
            return self._by_instructions(cycles, instructions) if stable else None
        if self._needed is None and stable:
            wave = self.size.wave_ctas
            self._needed = wave * max(1, ceil(self.finished_ctas / wave))
        if self._needed is None or self.finished_ctas < self._needed:
            return None
        return cycles * self.size.total_ctas / self.finished_ctas

    def _why_not_though_stable(self) -> Note:
        if self.size.fills_no_wave:
            return make_note("small_grid_of_unknown_instructions")
        return make_note(
            "wave_not_ended", finished_blocks=self.finished_ctas, needed_blocks=self._needed or 0.0
        )


class InstructionRule(StopRule):
    """Our default: stop where the IPC is stable and a wave has finished, and assume that the remaining
    instructions execute at the IPC of the window.

    Blocks in flight are then counted for what they have done, and the launch latency, in which nothing runs,
    is neither part of the IPC nor paid again. A grid below a wave needs no finished blocks.
    """

    name = "instructions"
    extrapolates_window = True

    def __init__(self, size: LaunchSize, parameters: ProjectionParameters) -> None:
        if size.total_instructions is None:
            raise ParameterError(
                "rule",
                "the rule 'instructions' needs the launch's total of thread instructions",
                "give total_instructions, or choose the rule 'paper'",
            )
        super().__init__(size, parameters)

    def _idle_cycles(self) -> float | None:
        return self.size.launch_latency_cycles

    def _projected(self, cycles: float, instructions: float, stable: bool) -> float | None:
        if not stable or (not self.size.fills_no_wave and self.finished_ctas < self.size.wave_ctas):
            return None
        return self._by_instructions(cycles, instructions)


_RULES: dict[str, type[StopRule]] = {rule.name: rule for rule in (ArtifactRule, PaperRule, InstructionRule)}


def stop_rule(size: LaunchSize, parameters: ProjectionParameters) -> StopRule:
    """The rule of the parameters for one launch; raises ParameterError if the rule lacks a value."""
    name = parameters.rule or ("instructions" if size.total_instructions is not None else "paper")
    return _RULES[name](size, parameters)
