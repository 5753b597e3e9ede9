"""Runs in memory for as long as a workload needs them, under one memory limit, with what is made of them."""

from __future__ import annotations

from collections.abc import Collection

from assay_sampling.errors import AssayError
from assay_sampling.launches.alignment import MATCH_KINDS, Alignment, MatchKind, align
from assay_sampling.launches.in_memory import Launches
from assay_server.analysis.rows import LaunchFacts
from assay_server.analysis.runs.loading import load_run
from assay_server.analysis.runs.request import AnalysisRequest, RunData


class RunMemory:
    """Loads runs on first use, each at most once while it is in memory, with what is computed once of each.

    Runs in memory count against the limit of the next load. A run that cannot be loaded gives the same error
    each time, or, if others were in memory then, until some are freed: perhaps it did not fit beside them.

    ``selected``: the runs on which selections were made.
    """

    def __init__(self, request: AnalysisRequest) -> None:
        self.selected: set[str] = set()
        self._memory_limit_bytes = request.memory_limit_bytes
        self._launches: dict[str, Launches] = {}
        self._spare: set[str] = set()
        self._errors: dict[str, AssayError] = {}
        self._beside_others: set[str] = set()
        self._facts: dict[str, LaunchFacts] = {}
        self._alignments: dict[tuple[str, str], dict[MatchKind, Alignment]] = {}

    def launches(self, run: RunData) -> Launches:
        """The run's launches; raises the error of loading it. Spare runs are freed if it does not fit."""
        try:
            run_launches = self.spare_launches(run)
        except AssayError:
            spare = self._spare & self._launches.keys()
            if not spare or run.run_id not in self._beside_others:
                raise
            self._free(spare)
            run_launches = self.spare_launches(run)
        self._spare.discard(run.run_id)
        return run_launches

    def spare_launches(self, run: RunData) -> Launches:
        """As :meth:`launches`, of a run that others may replace in memory; it replaces none itself."""
        if run.run_id in self._errors:
            raise self._errors[run.run_id]
        if run.run_id not in self._launches:
            used_bytes = sum(each.table.nbytes for each in self._launches.values())
            try:
                self._launches[run.run_id] = load_run(run, self._memory_limit_bytes - used_bytes)
            except AssayError as error:
                self._errors[run.run_id] = error
                if self._launches:
                    self._beside_others.add(run.run_id)
                raise
            self._spare.add(run.run_id)
        return self._launches[run.run_id]

    def facts(self, run: RunData) -> LaunchFacts:
        """Counts and overlap of a run's launches."""
        if run.run_id not in self._facts:
            self._facts[run.run_id] = LaunchFacts.of(self.launches(run))
        return self._facts[run.run_id]

    def aligned(self, reference: RunData, other: RunData) -> dict[MatchKind, Alignment]:
        """The two runs aligned by every kind."""
        pair = reference.run_id, other.run_id
        if pair not in self._alignments:
            left, right = self.launches(reference), self.launches(other)
            self._alignments[pair] = {kind: align(left, right, kind) for kind in MATCH_KINDS}
        return self._alignments[pair]

    def release(self) -> None:
        """Free the launches of runs on which no selection was made."""
        self.keep_only(self.selected)

    def keep_only(self, run_ids: Collection[str]) -> None:
        """Free the launches of all runs except these, and all alignments."""
        self._free(self._launches.keys() - set(run_ids))
        self._alignments.clear()

    def _free(self, run_ids: Collection[str]) -> None:
        for run_id in run_ids:
            del self._launches[run_id]
        if run_ids:
            for run_id in self._beside_others:
                del self._errors[run_id]
            self._beside_others.clear()
