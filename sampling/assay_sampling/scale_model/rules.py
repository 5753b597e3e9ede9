"""Rules that extend two scale models to a target, and where the miss-rate curve puts a cliff.

S, L: sizes of the scale models, I_S, I_L their IPC, T the target, C = (I_L / I_S) / (L / S).

========================  ==========================================================================
rule                      IPC at T
========================  ==========================================================================
``tool`` (default)        the authors' tool: step i from L times 2 (1+b)^i, b = (I_L - 2 I_S) / I_L
``printed``               the paper's equations 1 to 4: I_L (T/L) C; the correction does not compound
``log_quadratic``         ours: step i times 2 C^(1 + p (i - 1))
``proportional``          I_S T / S
``linear``                the line through both points
``power_law``             I_L (T/L)^a, a = log(I_L / I_S) / log(L / S)
``logarithmic``           u + v log T through both points
========================  ==========================================================================

The first three model a **cliff**: the first doubling at which misses per thousand instructions fall by more
than 2x. That step is divided by 1 - f_mem as well, and the correction starts again after it. Without f_mem
such targets are refused, not guessed. (The tool also requires the miss rate to be far from its moving
average; on the published data both find the same cliffs.)

**Why the logarithm is quadratic.** Let s be the slope of log IPC over log size; ideal scaling is s = 1, and
log2 C = s - 1 is what the scale models measure of the deviation. A power law holds s constant. It must not
be: what makes a fixed amount of work deviate (too few thread blocks for the SMs, more SMs camping on the same
lines, a working set that fits better and better) gets stronger with every doubling, and from the same side.
The next term of the expansion of log IPC in log size lets the deviation grow by a share p of itself with each
doubling, which is step i times C^(1 + p (i - 1)). p = 0 is the power law, and a workload that scales ideally
(C = 1) stays ideal for every p. It uses C, not the tool's 1 + b = 2 - 1/C, which is below C unless C is 1,
so the tool is too low on both sides; and (1 + b)^i has p = 1, which overshoots where the workload scales
worst. p was chosen on the published strong-scaling workloads, leaving out one at a time: every fold chose
0.75 (:mod:`assay_sampling.scale_model.evaluation`). It is an expansion: far beyond three doublings it is
unreliable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay_sampling.errors import ParameterError
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.scale_model.scaling_table import ScaleModels

DEFAULT_RULE = "tool"
OUR_RULE = "log_quadratic"
# Chosen by leave-one-workload-out on the 21 published strong-scaling workloads; a test repeats that.
DEVIATION_GROWTH = 0.75
CLIFF_FACTOR = 2.0


@dataclass(frozen=True)
class Prediction:
    """IPC at ``size``, or None with the ``reason``; ``region``: pre-cliff, cliff, post-cliff or empty."""

    size: int
    ipc: float | None
    region: str = ""
    reason: Note | None = None


@dataclass(frozen=True)
class Cliff:
    """Where the miss-rate curve falls: at doubling ``step`` (1, 2 ...) from L, or nowhere (None).

    Doublings after ``known_steps`` have no miss rates, so a cliff there is unknown. ``missing`` is the first
    size without a miss rate.
    """

    step: int | None
    known_steps: int
    missing: int | None = None


def find_cliff(models: ScaleModels, doublings: int) -> Cliff:
    """The first of ``doublings`` from L at which MPKI falls by more than 2x; without a curve, no cliff."""
    curve = models.mpki
    if not curve:
        return Cliff(None, doublings)
    for step in range(1, doublings + 1):
        before, after = models.large << (step - 1), models.large << step
        for size in (before, after):
            if size not in curve:
                return Cliff(None, step - 1, size)
        if curve[before] > CLIFF_FACTOR * curve[after]:
            return Cliff(step, doublings)
    return Cliff(None, doublings)


def predict(
    rule: str, models: ScaleModels, targets: Sequence[int], *, deviation_growth: float = DEVIATION_GROWTH
) -> list[Prediction]:
    """Predict the IPC of each target by ``rule``; ``deviation_growth`` is p of ``log_quadratic``.

    Raises ParameterError for an unknown rule, a target below the scale models, a target that is not a
    doubling of L for rules that walk by doublings, and scale models that are not one doubling apart for
    ``tool``.
    """
    if rule not in RULES:
        raise ParameterError("rule", f"{rule!r} is not a rule", f"choose from {', '.join(RULES)}")
    for target in targets:
        if target <= models.large:
            raise ParameterError(
                f"target {target}",
                f"it is not larger than the scale model of {models.large}",
                "give a larger one",
            )
    return RULES[rule](models, targets, deviation_growth)


def _tool(models: ScaleModels, targets: Sequence[int], _: float) -> list[Prediction]:
    if models.large != 2 * models.small:
        raise ParameterError(
            "tool",
            f"its correction is for scale models one doubling apart, not {models.small} and {models.large}",
            "take another size, or another rule",
        )
    base = 2.0 - 2.0 * models.small_ipc / models.large_ipc
    if base <= 0:
        reason = make_note("correction_not_positive")
        return [Prediction(target, None, reason=reason) for target in targets]
    return _walk(models, targets, lambda step: base**step)


def _log_quadratic(models: ScaleModels, targets: Sequence[int], growth: float) -> list[Prediction]:
    of_a_doubling = models.correction ** (1.0 / models.doublings)
    return _walk(models, targets, lambda step: of_a_doubling ** (1.0 + growth * (step - 1)))


def _walk(
    models: ScaleModels, targets: Sequence[int], correction: Callable[[int], float]
) -> list[Prediction]:
    """Double from L up to each target; ``correction`` of step 1, 2 ... starts again after the cliff."""
    predictions = []
    for target in targets:
        steps = _doublings(models, target)
        cliff = find_cliff(models, steps)
        refusal = _refusal(models, cliff, steps)
        if refusal is not None:
            predictions.append(Prediction(target, None, reason=refusal))
            continue
        ipc, step = models.large_ipc, 0
        for doubling in range(1, steps + 1):
            step += 1
            ipc *= 2.0 * correction(step)
            if doubling == cliff.step:
                ipc /= 1.0 - (models.f_mem or 0.0)
                step = 0
        predictions.append(Prediction(target, ipc, _region(cliff, steps)))
    return predictions


def _printed(models: ScaleModels, targets: Sequence[int], _: float) -> list[Prediction]:
    predictions = []
    for target in targets:
        steps = _doublings(models, target)
        cliff = find_cliff(models, steps)
        refusal = _refusal(models, cliff, steps)
        if refusal is not None:
            predictions.append(Prediction(target, None, reason=refusal))
            continue
        region = _region(cliff, steps)
        ipc = models.large_ipc * target / models.large
        if region != "pre-cliff":
            ipc /= 1.0 - (models.f_mem or 0.0)
        if region != "cliff":
            ipc *= models.correction
        predictions.append(Prediction(target, ipc, region))
    return predictions


def _doublings(models: ScaleModels, target: int) -> int:
    steps = round(math.log2(target / models.large))
    if models.large << steps != target:
        raise ParameterError(
            f"target {target}",
            f"it is not a doubling of the scale model of {models.large}, and this rule walks by doublings",
            f"give {models.large << steps}, or take the rule power_law",
        )
    return steps


def _region(cliff: Cliff, steps: int) -> str:
    if cliff.step is None or steps < cliff.step:
        return "pre-cliff"
    return "cliff" if steps == cliff.step else "post-cliff"


def _refusal(models: ScaleModels, cliff: Cliff, steps: int) -> Note | None:
    if steps > cliff.known_steps:
        return make_note("miss_rate_missing", size=cliff.missing or 0)
    if cliff.step is not None and steps >= cliff.step and models.f_mem is None:
        size = models.large << cliff.step
        return make_note("memory_share_missing", factor=CLIFF_FACTOR, size=size, scale_model=models.large)
    return None


def _closed(formula: Callable[[ScaleModels, int], float]) -> Callable[..., list[Prediction]]:
    def rule(models: ScaleModels, targets: Sequence[int], _: float) -> list[Prediction]:
        return [Prediction(target, formula(models, target)) for target in targets]

    return rule


def _proportional(models: ScaleModels, target: int) -> float:
    # From the smallest model: only that gives the paper's 22 % and 113 %.
    return models.small_ipc * target / models.small


def _linear(models: ScaleModels, target: int) -> float:
    slope = (models.large_ipc - models.small_ipc) / (models.large - models.small)
    return models.large_ipc + slope * (target - models.large)


def _power_law(models: ScaleModels, target: int) -> float:
    exponent = math.log2(models.large_ipc / models.small_ipc) / models.doublings
    return models.large_ipc * math.pow(target / models.large, exponent)


def _logarithmic(models: ScaleModels, target: int) -> float:
    slope = (models.large_ipc - models.small_ipc) / models.doublings
    return models.large_ipc + slope * math.log2(target / models.large)


RULES: dict[str, Callable[[ScaleModels, Sequence[int], float], list[Prediction]]] = {
    "tool": _tool,
    "printed": _printed,
    OUR_RULE: _log_quadratic,
    "proportional": _closed(_proportional),
    "linear": _closed(_linear),
    "power_law": _closed(_power_law),
    "logarithmic": _closed(_logarithmic),
}
