"""Runs held in memory for as long as a workload needs them, under one memory limit."""

from __future__ import annotations

from collections.abc import Callable, Collection

from assay_sampling.errors import AssayError
from assay_sampling.launches.in_memory import Launches
from assay_server.analysis.runs.request import RunData

Load = Callable[[RunData, int], Launches]


class HeldRuns:
    """Loads runs on first use, each at most once while it is held.

    Held runs count against the memory limit of the next load. A run that cannot be loaded gives the same
    error each time, or, if others were held then, until some are freed: perhaps it did not fit beside them.
    """

    def __init__(self, load: Load, memory_limit_bytes: int) -> None:
        self._load = load
        self._memory_limit_bytes = memory_limit_bytes
        self._launches: dict[str, Launches] = {}
        self._spare: set[str] = set()
        self._errors: dict[str, AssayError] = {}
        self._beside_others: set[str] = set()

    def launches(self, run: RunData) -> Launches:
        """The run's launches; raises the error of loading it. Spare runs are freed if it does not fit."""
        try:
            run_launches = self.spare_launches(run)
        except AssayError:
            spare = self._spare & self._launches.keys()
            if not spare or run.run_id not in self._beside_others:
                raise
            self.keep_only(self._launches.keys() - spare)
            run_launches = self.spare_launches(run)
        self._spare.discard(run.run_id)
        return run_launches

    def spare_launches(self, run: RunData) -> Launches:
        """As :meth:`launches`, of a run that others may replace in memory; it replaces none itself."""
        if run.run_id in self._errors:
            raise self._errors[run.run_id]
        if run.run_id not in self._launches:
            free_bytes = self._memory_limit_bytes - sum(each.table.nbytes for each in self._launches.values())
            try:
                self._launches[run.run_id] = self._load(run, free_bytes)
            except AssayError as error:
                self._errors[run.run_id] = error
                if self._launches:
                    self._beside_others.add(run.run_id)
                raise
            self._spare.add(run.run_id)
        return self._launches[run.run_id]

    def keep_only(self, run_ids: Collection[str]) -> None:
        """Free all runs except these."""
        freed = self._launches.keys() - set(run_ids)
        self._launches = {
            run_id: launches for run_id, launches in self._launches.items() if run_id in run_ids
        }
        if freed:
            for run_id in self._beside_others:
                del self._errors[run_id]
            self._beside_others.clear()
