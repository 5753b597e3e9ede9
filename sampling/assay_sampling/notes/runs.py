"""Notes on runs of a campaign that are analysed together."""

from __future__ import annotations

from assay_sampling.notes.base import NoteKind, count_of, launches_of

SEVERAL_RUNS = (
    NoteKind(
        "cycles_of_another_run",
        "cycles are those of a run in one pass, the other counters of another run",
        lambda cycles, counters: f"cycles of {cycles}, other counters of {counters}",
    ),
    NoteKind(
        "launches_in_both",
        "only the launches that both runs have are used",
        lambda joined, launches: f"{joined:,} of {launches_of(launches)} are in both",
    ),
    NoteKind(
        "cycles_disturbed",
        "the run meant to measure cycles in one pass took several",
        lambda run, passes: f"{run} took {passes:g} passes, so its cycles are disturbed too",
    ),
    NoteKind(
        "light_repeat_unused",
        "a repeated light run does not count in the mean light time",
        lambda error, subject, cause, remedy, run: (
            f"the repeat {run} does not count in the mean light time: {cause}"
        ),
    ),
    NoteKind(
        "repeats_unused",
        "of several repeats only the first is scored",
        lambda repeats, level, first_run: (
            f"{repeats:,} {level} repeats; the numbers rest on the first, {first_run}"
        ),
    ),
    NoteKind(
        "ranks_together",
        "the launches of several processes (ranks) are taken together",
        lambda processes: (
            f"the launches of {processes:,} processes (ranks) together; 'ranks: each' of the workload in the "
            "campaign file evaluates each alone"
        ),
    ),
    NoteKind(
        "repeats_differ",
        "repeats of one run have different numbers of launches",
        lambda launches: f"the repeats differ in launches: {', '.join(f'{n:,}' for n in launches)}",
    ),
    NoteKind(
        "level_not_compared",
        "one of the levels could not be compared, but the other could",
        lambda level, error, subject, cause, remedy: cause,
    ),
    NoteKind(
        "groups_left_out",
        "a report does not carry the groups of a selection with very many representatives",
        lambda representatives, most: (
            f"{count_of(representatives, 'representative is', 'representatives are')} more than the {most:,} "
            "that a report carries; make the selection again from the same runs with the same parameters and "
            "seed"
        ),
    ),
)  # fmt: skip
