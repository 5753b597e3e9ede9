"""The parts of the proof, workload by workload, within a time limit; what is finished is written at once.

A workload is a campaign of its own: where the proof is stopped, or killed on a box that is only borrowed,
everything up to the workload before counts, and is in the results.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gpu import plan
from tests.gpu.claims import Claim, Measured, agreement, claims_of, flaws_of
from tests.gpu.lab import Lab
from tests.gpu.pack import pack_logs, pack_recordings

Say = Callable[[str], None]
# For ending the run in hand, stopping server and agent, and writing the results.
_RESERVE_SECONDS = 40.0
# No workload is begun for less.
_LEAST_SECONDS = 15.0
# The key of claims.json that says what another call should try again.
NOT_PROVED = "not_proved"


class TimeLimit:
    """How long everything may take together; 0 seconds: as long as it needs.

    Args:
        seconds: from its making.
        clock: seconds; only tests give another.
    """

    def __init__(self, seconds: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._until = clock() + seconds - _RESERVE_SECONDS if seconds else math.inf
        self._clock = clock

    @property
    def left_seconds(self) -> float:
        """For runs; without the reserve. Infinite where there is no limit."""
        return self._until - self._clock()

    @property
    def over(self) -> bool:
        """Whether no workload is to be begun any more."""
        return self.left_seconds < _LEAST_SECONDS


@dataclass
class PartResult:
    """What the campaigns of a part have brought so far."""

    part: str
    reports: list[Mapping[str, Any]] = field(default_factory=list)
    runs: list[Mapping[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    without_report: list[str] = field(default_factory=list)

    def measured(self, records: Path, least_launches: int) -> Measured:
        """As one campaign; a part that lacks workloads owes no million launches."""
        return Measured(
            self.part, merged(self.reports), self.runs, records, 0 if self.left_out else least_launches
        )


@dataclass(frozen=True)
class Results:
    """Where the results go: the claims, the recordings and the logs, three files."""

    folder: Path
    work: Path
    facts: Mapping[str, Any]

    def write(
        self,
        measured: Sequence[Measured],
        claims: Sequence[Claim],
        *,
        ended: bool,
        not_proved: Sequence[Sequence[str]] = (),
    ) -> dict[str, Any]:
        """Write all that there is; the manifest of the recordings. ``not_proved``: parts and workloads."""
        summary = {**self.facts, "ended": ended, "claims": [claim.to_dict() for claim in claims]}
        summary[NOT_PROVED] = [list(pair) for pair in not_proved]
        partial = self.folder / "claims.json.partial"
        partial.write_text(json.dumps(summary, indent=1))
        partial.replace(self.folder / "claims.json")
        pack_logs(self.folder / "logs.tar.gz", self.work, measured)
        return pack_recordings(self.folder / "recordings.tar.gz", measured, self.facts)


class Proof:
    """Runs parts and judges them.

    Args:
        lab: server and agent.
        results: where the results go.
        limit: on the time of everything.
        least_launches: that the longest run of the part "launches" must have.
        say: tells people.
    """

    def __init__(self, lab: Lab, results: Results, limit: TimeLimit, least_launches: int, say: Say) -> None:
        self._lab, self._results, self._limit = lab, results, limit
        self._least_launches, self._say = least_launches, say
        self.measured: dict[str, Measured] = {}
        self._claims: dict[str, list[Claim]] = {}
        self._not_proved: dict[str, list[str]] = {}

    @property
    def not_proved(self) -> list[tuple[str, str]]:
        """(part, workload) of each that was not run to its end, or has a run that no claim may rest on."""
        return [(part, name) for part, names in self._not_proved.items() for name in names]

    @property
    def claims(self) -> list[Claim]:
        return [claim for claims in self._claims.values() for claim in claims]

    def run_part(
        self,
        part: str,
        workloads: Sequence[plan.Workload],
        campaign: Callable[[plan.Workload], dict[str, Any]],
    ) -> None:
        """Run a part, a campaign a workload; its claims are told at the end, and written after each."""
        result = PartResult(part)
        for position, workload in enumerate(workloads):
            if self._limit.over:
                result.left_out += [workload.name for workload in workloads[position:]]
                break
            self._run(result, workload, campaign(workload))
            self._judge(result)
        self._judge(result)
        self.tell(self._claims[part])

    def _run(self, result: PartResult, workload: plan.Workload, document: dict[str, Any]) -> None:
        path = plan.write_campaign(self._results.work / f"{result.part}-{workload.name}.yaml", document)
        status, report = self._lab.run(path, self._say, self._limit.left_seconds)
        runs = self._lab.runs(status)
        if status["state"] == "cancelled":
            # What was ended for want of time proves nothing, in no direction.
            result.left_out.append(workload.name)
            runs = [run for run in runs if run["state"] == "done"]
        elif not report:
            result.without_report.append(workload.name)
        result.runs += runs
        result.reports.append(report)

    def _judge(self, result: PartResult) -> None:
        """Judge what there is of a part, and write it."""
        part = result.part
        self.measured[part] = result.measured(self._lab.state, self._least_launches)
        flawed = [run["workload"] for run in result.runs if flaws_of(run)]
        self._not_proved[part] = list(dict.fromkeys([*flawed, *result.without_report, *result.left_out]))
        more = [*_reported(result.without_report), *_time_was_over(result.left_out)]
        self._claims[part] = named(part, claims_of(self.measured[part]) + more)
        self._results.write(
            list(self.measured.values()), self.claims, ended=False, not_proved=self.not_proved
        )

    def compare_tracers(self) -> None:
        """Whether two tracers saw the same, where both measured."""
        for one, other in (("cuda", "tracers"), ("torch", "kineto")):
            if {one, other} <= set(self.measured):
                self.add(other, [agreement(self.measured[one], self.measured[other])])

    def add(self, part: str, claims: list[Claim]) -> None:
        """Claims that belong to no campaign."""
        self._claims[part] = self._claims.get(part, []) + named(part, claims)
        self.tell(claims)

    def tell(self, claims: Sequence[Claim]) -> None:
        """Say claims with their numbers."""
        for claim in claims:
            self._say(f"[{claim.state}] {claim.name}{f' - {claim.why}' if claim.why else ''}")
            for line in claim.lines:
                self._say(f"    {line}")


def not_proved_in(folder: Path) -> list[tuple[str, str]]:
    """(part, workload) of what earlier calls, whose claims.json lie in or below a folder, did not prove."""
    found: dict[tuple[str, str], None] = {}
    for path in sorted(folder.rglob("claims.json")):
        found |= dict.fromkeys((str(a), str(b)) for a, b in json.loads(path.read_text()).get(NOT_PROVED, ()))
    return list(found)


def named(part: str, claims: list[Claim]) -> list[Claim]:
    """The claims under the name of their part."""
    for claim in claims:
        claim.name = f"{part}: {claim.name}"
    return claims


def merged(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Reports of several campaigns as one: what they list is joined; of the rest, the last word counts."""
    whole: dict[str, Any] = {}
    for report in reports:
        for key, value in report.items():
            whole[key] = [*whole.get(key, ()), *value] if isinstance(value, list) else value
    return whole


def _reported(without: Sequence[str]) -> list[Claim]:
    if not without:
        return []
    return [Claim("every campaign ends with a report", "fails", f"there is none of {', '.join(without)}")]


def _time_was_over(left_out: Sequence[str]) -> list[Claim]:
    if not left_out:
        return []
    return [Claim("every workload", why=f"the time was over before: {', '.join(left_out)}")]
