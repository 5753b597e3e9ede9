"""The rule ``waves``: stop once whole waves agree about how the launch goes on.

Source: docs/methods/projection.md, "Waves". A phase that is still to come does not show in the IPC so far,
but it does show in the instructions that its blocks have left to execute, whose total is known beforehand.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from math import isfinite

from assay_sampling.notes.registry import Note, make_note
from assay_sampling.projection.launch_end import LAST_WAVE_SHARE
from assay_sampling.projection.rule import (
    LaunchSize,
    ProjectionParameters,
    Stop,
    StopRule,
    require_instructions,
)

LEAST_WAVES = 3.5
# The rule looks at every end of half a wave, at the last three waves, in two parts.
_LEAST_HALVES = int(2 * LEAST_WAVES)
_PART, _WINDOW = 3, 6


@dataclass(frozen=True)
class _HalfEnd:
    """The first sample at which a further half of a wave has finished: halves, sample, cycles, instructions
    and blocks so far."""

    halves: int
    sample_index: int
    cycles: float
    instructions: float
    finished_ctas: float


@dataclass(frozen=True)
class _Estimate:
    """The projected cycles, the IPC of the window, and the disagreement behind them in percent."""

    projected_cycles: float
    window_ipc: float
    disagreement_percent: float


class WavesRule(StopRule):
    """After three and a half waves and each later half, project the rest of the launch from the last three
    waves, by blocks and by instructions; stop where the two agree within ``tolerance_percent`` and the IPC of
    the two halves of the window does too. The projection is the one by instructions, and the time that the
    end of the launch takes longer (:mod:`assay_sampling.projection.launch_end`).

    Cycles are counted without the launch latency, which would hide a disagreement. A grid of fewer than three
    and a half waves is not projected. Samples in which several halves end count as one end; where samples are
    longer than waves, the window is the last two samples.
    """

    name = "waves"
    threshold_name = "tolerance_percent"
    extrapolates_window = True

    def __init__(self, size: LaunchSize, parameters: ProjectionParameters) -> None:
        require_instructions(size, self.name)
        super().__init__(size)
        self._tolerance_percent = parameters.tolerance_percent
        self._idle_cycles = size.launch_latency_cycles or 0.0
        self._idle_is_known = size.launch_latency_cycles is not None
        last_wave = min(1.0, size.wave_ctas / size.total_ctas)
        self._end_share = LAST_WAVE_SHARE * last_wave if size.end_share is None else size.end_share
        self._halves = 0
        self._ends: deque[_HalfEnd] = deque(maxlen=_WINDOW + 1)
        self._least: float | None = None

    @property
    def least_threshold(self) -> float | None:
        return self._least

    def push(self, cycles: float, instructions: float, ctas: float) -> Stop | None:
        index, self.samples = self.samples, self.samples + 1
        rest = self.instructions_left(instructions)
        if not self._idle_is_known:
            self._idle_is_known = instructions > 0
            self._idle_cycles = self._idle_cycles if instructions > 0 else cycles
        self.finished_ctas += ctas
        halves = int(2 * self.finished_ctas // self.size.wave_ctas)
        if halves <= self._halves:
            return None
        self._halves = halves
        self._ends.append(_HalfEnd(halves, index, cycles, instructions, self.finished_ctas))
        estimate = self._estimate(self.size.total_ctas - self.finished_ctas, rest)
        if estimate is None:
            return None
        apart = estimate.disagreement_percent
        self._least = apart if self._least is None else min(apart, self._least)
        if not apart < self._tolerance_percent:
            return None
        window = index - self._window()[0].sample_index
        return Stop(index, cycles, instructions, self.finished_ctas, estimate.projected_cycles,
                    estimate.window_ipc, window)  # fmt: skip

    def _estimate(self, blocks_left: float, instructions_left: float) -> _Estimate | None:
        """From the window; None before there are enough, at the end, or if one executed nothing."""
        if self._halves < _LEAST_HALVES or len(self._ends) < 3 or blocks_left <= 0:
            return None
        before, between, now = self._window()
        first, second = _ipc(before, between), _ipc(between, now)
        so_far = now.cycles - self._idle_cycles
        if not min(first, second, so_far) > 0:
            return None
        cycles = now.cycles - before.cycles
        by_blocks = so_far + blocks_left * cycles / (now.finished_ctas - before.finished_ctas)
        window_ipc = _ipc(before, now)
        by_instructions = so_far + instructions_left / window_ipc
        if not isfinite(by_instructions):
            return None
        total = self.size.total_instructions
        assert total is not None
        return _Estimate(
            projected_cycles=self._idle_cycles + by_instructions + self._end_share * total / window_ipc,
            window_ipc=window_ipc,
            disagreement_percent=max(_apart(by_blocks, by_instructions), _apart(first, second)),
        )

    def _window(self) -> tuple[_HalfEnd, _HalfEnd, _HalfEnd]:
        """The ends at which the two halves of the window began, and at which it ended; there are at least
        three."""
        ends = list(self._ends)
        halves, last = [end.halves for end in ends], len(ends) - 1
        began = min(_last_at_most(halves, halves[-1] - _WINDOW), last - 2)
        met = min(max(_last_at_most(halves, halves[-1] - _PART), began + 1), last - 1)
        return ends[began], ends[met], ends[-1]

    def why_not(self) -> Note:
        if self.samples == 0:
            return make_note("no_sample")
        if self.size.total_ctas < LEAST_WAVES * self.size.wave_ctas:
            return make_note(
                "too_few_waves",
                blocks=self.size.total_ctas,
                wave_blocks=self.size.wave_ctas,
                least=LEAST_WAVES,
            )
        if self._least is None:
            return make_note("no_sample_after_waves", least=LEAST_WAVES)
        return make_note(
            "waves_disagree", least_disagreement=self._least, tolerance_percent=self._tolerance_percent
        )


def _last_at_most(halves: list[int], most: int) -> int:
    """The index of the last number that is at most ``most``, else 0."""
    return max(bisect_right(halves, most) - 1, 0)


def _ipc(start: _HalfEnd, end: _HalfEnd) -> float:
    return (end.instructions - start.instructions) / (end.cycles - start.cycles)


def _apart(one: float, other: float) -> float:
    return 100.0 * (max(one, other) / min(one, other) - 1.0)
