"""What a verdict rests on: the facts of a selection, or of its score on another GPU, as numbers."""

from __future__ import annotations

from dataclasses import dataclass

from assay_sampling.parameters import WeightKind
from assay_sampling.verdicts.expected import ExpectedErrors


@dataclass(frozen=True)
class VerdictFacts:
    """What is known of a selection where it was made, or of its score on another recording.

    ``elsewhere``: the errors are those on another GPU or under another condition, whose truth is known; else
    they are of the selection's own recording, and ``expected`` says what to expect of another GPU, None if
    nobody computed it. ``groups``, ``kernels`` and ``launches`` (by operation operations) are those that
    the groups divide, None where unknown; ``representatives`` stand for them, ``drawn`` at random or chosen
    by a rule. ``interval_half_percent`` is the half width of the interval, None without one.
    ``unseen_time_percent``: of two levels, the light time in signatures that the window lacks.
    ``weighed_otherwise``: the errors are those where it was made, by other weights than those for other GPUs.
    ``unscored_recordings``: recordings of other GPUs that were given, of which none could be scored.
    ``unmatched_time_percent``: the larger share of the time, of either side, without a counterpart.
    ``weights`` are those for other GPUs. ``windows`` are of the program, where only these were
    recorded, in words (:func:`assay_sampling.verdicts.windows.windows_of`).
    """

    error_percent: float | None
    group_error_percent: float | None
    elsewhere: bool = False
    groups: int | None = None
    kernels: int | None = None
    representatives: int = 0
    launches: int | None = None
    drawn: bool = False
    expected: ExpectedErrors | None = None
    interval_half_percent: float | None = None
    unseen_time_percent: float | None = None
    unmatched_time_percent: float | None = None
    unscored_recordings: int = 0
    weighed_otherwise: bool = False
    weights: WeightKind = "launches"
    windows: tuple[str, ...] = ()
