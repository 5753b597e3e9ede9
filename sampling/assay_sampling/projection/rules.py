"""Rules of principal kernel projection: when a launch may stop, and its projected cycles.

Source: PKA (MICRO'21) 3.2 and its artifact, which differ: docs/methods/projection.md. Those here wait until
the IPC settles; :mod:`assay_sampling.projection.waves` compares whole waves instead.
"""

from __future__ import annotations

from math import ceil

from assay_sampling.errors import ParameterError
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.projection.rule import (
    LaunchSize,
    ProjectionParameters,
    RuleName,
    Stop,
    StopRule,
    require_instructions,
)
from assay_sampling.projection.stability import LEAST_WINDOW_SAMPLES, StabilityDetector
from assay_sampling.projection.waves import WavesRule

# Share of all blocks that the artifact waits for where the grid does not fill the GPU once.
_ARTIFACT_SUBWAVE_SHARE = 0.3
# Parameters of the rules that wait until the IPC settles.
SETTLING = frozenset({"window_cycles", "s", "signal", "spread"})


class SettlingRule(StopRule):
    """Base of the rules that stop once the IPC is stable."""

    def __init__(self, size: LaunchSize, parameters: ProjectionParameters) -> None:
        super().__init__(size)
        self.detector = StabilityDetector(
            parameters.window_cycles,
            parameters.s,
            signal=parameters.signal,
            spread=parameters.spread,
            idle_cycles=self._idle_cycles(),
        )
        # The least spread at samples that need so many finished blocks, if the IPC is stable there.
        self._least_spreads: dict[float, float] = {}

    def push(self, cycles: float, instructions: float, ctas: float) -> Stop | None:
        stable = self.detector.push(cycles, instructions)
        self._finish(ctas)
        spread, needed = self.detector.spread_now, self._needed_if_stable()
        if spread is not None and needed is not None:
            self._least_spreads[needed] = min(spread, self._least_spreads.get(needed, spread))
        projected = self._projected(cycles, instructions, stable)
        index, self.samples = self.samples, self.samples + 1
        if projected is None:
            return None
        ipc, window = self.detector.window_ipc, self.detector.window_samples or 0
        return Stop(index, cycles, instructions, self.finished_ctas, projected, ipc, window)

    def why_not(self) -> Note:
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

    @property
    def least_threshold(self) -> float | None:
        met = [spread for needed, spread in self._least_spreads.items() if needed <= self.finished_ctas]
        return min(met, default=None)

    def _idle_cycles(self) -> float | None:
        return 0.0

    def _needed_if_stable(self) -> float | None:
        """Blocks that must have finished, now or later, if the IPC is stable now; None: it does not count."""
        raise NotImplementedError

    def _finish(self, ctas: float) -> None:
        self.finished_ctas += ctas

    def _projected(self, cycles: float, instructions: float, stable: bool) -> float | None:
        raise NotImplementedError

    def _why_not_though_stable(self) -> Note:
        return make_note(
            "wave_not_finished", finished_blocks=self.finished_ctas, wave_blocks=self.size.wave_ctas
        )

    def _by_instructions(self, cycles: float, instructions: float) -> float | None:
        """The total with the rest at the IPC of the window; None if it is unknown or nothing was executed."""
        ipc = self.detector.window_ipc
        if self.size.total_instructions is None or not ipc > 0:
            return None
        return cycles + self.instructions_left(instructions) / ipc


class ArtifactRule(SettlingRule):
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

    def _needed_if_stable(self) -> float | None:
        return self._needed

    def _projected(self, cycles: float, instructions: float, stable: bool) -> float | None:
        self._was_stable |= stable
        if not self._was_stable or self.finished_ctas < self._needed:
            return None
        return cycles * (self.size.total_ctas / (self.finished_ctas + 1))


class PaperRule(SettlingRule):
    """The rule of the paper's text: stop at the end of the wave in which the IPC becomes stable, and assume
    that unfinished blocks need as long as the finished ones.

    A grid below a wave stops where the IPC becomes stable; few or none of its blocks have finished then, so
    it is projected by instructions, and does not stop if their total is unknown.
    """

    name = "paper"

    def __init__(self, size: LaunchSize, parameters: ProjectionParameters) -> None:
        super().__init__(size, parameters)
        self._needed: float | None = None

    def _needed_if_stable(self) -> float | None:
        if self.size.fills_no_wave:
            return 0.0 if self.size.total_instructions is not None else None
        wave = self.size.wave_ctas
        return float(wave * max(1, ceil(self.finished_ctas / wave)))

    def _projected(self, cycles: float, instructions: float, stable: bool) -> float | None:
        if self.size.fills_no_wave:
            return self._by_instructions(cycles, instructions) if stable else None
        if self._needed is None and stable:
            self._needed = self._needed_if_stable()
        if self._needed is None or self.finished_ctas < self._needed:
            return None
        return cycles * self.size.total_ctas / self.finished_ctas

    def _why_not_though_stable(self) -> Note:
        if self.size.fills_no_wave:
            return make_note("small_grid_of_unknown_instructions")
        return make_note(
            "wave_not_ended", finished_blocks=self.finished_ctas, needed_blocks=self._needed or 0.0
        )


class InstructionRule(SettlingRule):
    """Stop where the IPC is stable and a wave has finished, and assume that the remaining instructions
    execute at the IPC of the window.

    Blocks in flight are then counted for what they have done, and the launch latency, in which nothing runs,
    is neither part of the IPC nor paid again. A grid below a wave needs no finished blocks.
    """

    name = "instructions"
    extrapolates_window = True

    def __init__(self, size: LaunchSize, parameters: ProjectionParameters) -> None:
        require_instructions(size, self.name)
        super().__init__(size, parameters)

    def _idle_cycles(self) -> float | None:
        return self.size.launch_latency_cycles

    def _needed_if_stable(self) -> float | None:
        return 0.0 if self.size.fills_no_wave or self.finished_ctas >= self.size.wave_ctas else None

    def _projected(self, cycles: float, instructions: float, stable: bool) -> float | None:
        if not stable or self._needed_if_stable() is None:
            return None
        return self._by_instructions(cycles, instructions)


_SETTLING_RULES: dict[str, type[SettlingRule]] = {
    rule.name: rule for rule in (ArtifactRule, PaperRule, InstructionRule)
}


RULES: tuple[RuleName, ...] = ("waves", "instructions", "paper", "artifact")


def rule_of(size: LaunchSize, parameters: ProjectionParameters) -> RuleName:
    """The rule for one launch: that of the parameters; else "paper" where the instructions are not known,
    "instructions" where parameters of rules that settle are given, else "waves".
    """
    if parameters.rule is not None:
        return parameters.rule
    if size.total_instructions is None:
        return "paper"
    return "instructions" if SETTLING & parameters.model_fields_set else "waves"


def stop_rule(size: LaunchSize, parameters: ProjectionParameters) -> StopRule:
    """The rule of the parameters for one launch.

    Raises ParameterError if the rule lacks a value, or if the parameters hold one that it does not know.
    """
    name = rule_of(size, parameters)
    unknown = SETTLING if name == "waves" else {"tolerance_percent"}
    names = sorted(unknown & parameters.model_fields_set)
    if names and parameters.rule is not None:
        raise ParameterError(names[0], f"the rule {name!r} does not know it", "leave it out")
    if name == "waves":
        return WavesRule(size, parameters)
    return _SETTLING_RULES[name](size, parameters)
