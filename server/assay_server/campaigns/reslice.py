"""What the end of a slice changes about the slices behind it that nobody has been given yet.

A run whose campaign file fixes its slices is left alone. In others the rest is cut anew with what slices
have been measured to cost, goes on while new kinds of launches come, and ends with the workload, with what is
new, or with the time budget. Decided inside the transaction that publishes the slice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from assay_sampling.errors import AssayError
from assay_server.campaigns.kinds import LaunchKinds
from assay_server.campaigns.learned import RECENT_SLICES, learned_cost
from assay_server.campaigns.live_spec import SLICES_AHEAD, cost_before
from assay_server.campaigns.slice_cost import SliceCost
from assay_server.campaigns.spec import load_campaign
from assay_server.campaigns.windows import MOST_SKIPPED_PERCENT, Slicing, Window, cut
from assay_server.store.model import ENDED_RUNS, Flag, Run, Slice, SliceState
from assay_server.store.protocols import MetadataReader

# An open run ends when so many slices in a row brought no new kind of launch.
QUIET_SLICES = 2


@dataclass(frozen=True)
class Rest:
    """The slices from ``index`` on, in place of those that are there; ``flag`` says why it ends early."""

    index: int
    slices: tuple[Slice, ...]
    flag: Flag | None = None


def slicing_of(store: MetadataReader, run: Run) -> Slicing | None:
    """How a run is to be cut as it goes; None where nothing changes its slices."""
    if run.level != "detailed" or run.command is None:
        return None
    campaign = store.campaign(run.campaign_id)
    slicing = None if campaign is None else _slicing(campaign.text, campaign.file_name)
    return None if slicing is None or slicing.is_fixed else slicing


@lru_cache(maxsize=64)
def _slicing(text: str, file_name: str) -> Slicing | None:
    try:
        detailed = load_campaign(text, file_name or "campaign file").detailed
    except AssayError:  # an older release took the file in: what it planned stays
        return None
    return None if detailed is None else detailed.slicing


def rest_after(store: MetadataReader, run: Run, kinds: LaunchKinds) -> Rest | None:
    """What follows for the rest of a run of which a slice has just been done; None: it stays as it is.

    Raises InputError where the file of a published slice cannot be read.
    """
    slicing = slicing_of(store, run)
    if slicing is None or run.state in ENDED_RUNS:
        return None
    cost = learned_cost(store.slice_times(RECENT_SLICES), run) or cost_before(run.counters)
    slices = store.slices(run.run_id)
    progress = _Progress(slicing, run, slices, store.untried_from(run.run_id), cost)
    why = progress.end_of_workload() or progress.nothing_new(kinds) or progress.budget(store)
    if why is not None:
        rest: tuple[Slice, ...] = ()
    else:
        rest = progress.rest(ahead=max(SLICES_AHEAD, _places(store, run)))
    if [_window(piece) for piece in rest] == [_window(piece) for piece in progress.untried]:
        return None
    flag = None if why is None or not why.name else why
    return Rest(progress.index, rest, flag if progress.untried or slicing.is_open else None)


def _window(piece: Slice) -> Window:
    return piece.launch_skip, piece.launch_count


def _places(store: MetadataReader, run: Run) -> int:
    """How many GPUs of the lab can make slices of this run at the same time."""
    return sum(
        slot.device_key == run.device_key
        and slot.synthetic == run.synthetic
        and run.profiler in slot.profilers
        for agent in store.agents()
        for slot in agent.slots
    )


_WORKLOAD_ENDED = Flag("")


class _Progress:
    """A run between two of its slices: what was begun stays, the untried rest can change."""

    def __init__(
        self, slicing: Slicing, run: Run, slices: Sequence[Slice], untried_from: int, cost: SliceCost
    ) -> None:
        self.slicing, self.run, self.cost = slicing, run, cost
        self.index = untried_from
        self.begun = [piece for piece in slices if piece.index < untried_from]
        self.untried = [piece for piece in slices if piece.index >= untried_from]
        self.done = [piece for piece in self.begun if piece.state is SliceState.DONE]

    @property
    def _end(self) -> int:
        """The launch behind the last slice that was begun."""
        return sum(_window(self.begun[-1]))

    def end_of_workload(self) -> Flag | None:
        """No slice lies behind one that the workload did not fill; that needs no flag of its own."""
        ended = any(piece.launches < piece.launch_count for piece in self.done)
        return _WORKLOAD_ENDED if ended else None

    def nothing_new(self, kinds: LaunchKinds) -> Flag | None:
        """Of the slices done from the beginning on without a gap, the last brought no new kind of launch."""
        if not self.slicing.is_open:
            return None
        together = []
        for piece in self.begun:
            if piece.state is not SliceState.DONE:
                break
            together.append(piece)
        if len(together) <= QUIET_SLICES or any(kinds.new_in(together)[-QUIET_SLICES:]):
            return None
        launches = sum(piece.launches for piece in together[-QUIET_SLICES:])
        return Flag(
            "window_cut",
            f"the window ends after {self._end:,} launches: the last {launches:,} brought no new kind",
        )

    def budget(self, store: MetadataReader) -> Flag | None:
        """The next slice would exceed the time that the campaign gives to a run."""
        budget = self.slicing.time_budget_s
        if not budget:
            return None
        running = [piece for piece in self.begun if piece.state is not SliceState.DONE]
        follows = self.untried[:1] or list(self.rest(ahead=len(running) + 1))[:1]
        expected = sum(self.cost.seconds(*_window(piece)) for piece in [*running, *follows])
        if not follows or store.seconds_spent(self.run.run_id) + expected <= budget:
            return None
        return Flag(
            "window_cut",
            f"the window ends after {self._end:,} launches: another slice would exceed the time budget of "
            f"{budget:g} s",
        )

    def rest(self, ahead: int) -> tuple[Slice, ...]:
        """The slices behind those that were begun; of an open run as many as ``ahead`` leaves to plan."""
        slicing, most = self.slicing, None
        if slicing.is_open:
            most = max(0, ahead - (len(self.begun) - len(self.done)))
            if len(self.untried) >= most:
                return tuple(self.untried)
        elif slicing.slice_launches or self._skips_little():
            return tuple(self.untried)
        first = Slice(self.run.run_id, self.index)
        return tuple(
            replace(first, index=self.index + number, launch_skip=skip, launch_count=count)
            for number, (skip, count) in enumerate(cut(slicing, self.cost, self._end, most))
        )

    def _skips_little(self) -> bool:
        shares = (self.cost.skipped_percent(*_window(piece)) for piece in self.untried)
        return max(shares, default=-math.inf) < MOST_SKIPPED_PERCENT
