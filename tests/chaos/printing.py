"""What the program prints: progress, one line a fault, and the table at the end."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.chaos.comparing import Difference
from tests.chaos.course import Course
from tests.chaos.faults.seam import Outcome
from tests.chaos.work import Size

_EVERY_SECONDS = 10.0


class Printer:
    """Lines for people, on standard error if standard output is for JSON."""

    def __init__(self, *, quiet: bool) -> None:
        self._json = quiet
        self._stream = sys.stderr if quiet else sys.stdout
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._told = 0.0
        self._faults = 0

    def say(self, text: str) -> None:
        """One line, with the time."""
        with self._lock:
            print(f"{time.monotonic() - self._began:7.1f} s  {text}", file=self._stream, flush=True)

    def progress_of(self, name: str) -> Callable[[int, int], None]:
        """Tells how far a lab is, now and then."""

        def told(done: int, runs: int) -> None:
            if time.monotonic() - self._told > _EVERY_SECONDS:
                self._told = time.monotonic()
                faults = f", {self._faults} faults" if self._faults else ""
                self.say(f"{name}: {done} of {runs} runs done{faults}")

        return told

    def outcome(self, each: Outcome) -> None:
        """One fault."""
        self._faults += bool(each.effect)
        text = each.broken or each.effect or "did not take hold"
        self.say(f"  {each.kind} of {each.target}, {each.seconds:.1f} s: {text}")

    def result(self, found: dict[str, Any]) -> None:
        """The end."""
        if self._json:
            print(json.dumps(found, indent=2))
            return
        for line in table(found):
            print(line)


@dataclass(frozen=True)
class Asked:
    """What the program was asked for."""

    seed: int
    size: Size
    faults: int


def document(
    asked: Asked,
    whole: Course,
    disturbed: Course,
    found: Difference,
    *,
    total_seconds: float,
    good: bool,
) -> dict[str, Any]:
    """All that was seen, for scripts."""
    took_hold = Counter(each.kind for each in disturbed.outcomes if each.effect)
    not_held = Counter(each.kind for each in disturbed.outcomes if not each.effect)
    return {
        "seed": asked.seed,
        "good": good,
        "size": dataclasses.asdict(asked.size),
        "faults_asked": asked.faults,
        "faults": took_hold.total(),
        "kinds": len(took_hold),
        "faults_by_kind": dict(sorted(took_hold.items())),
        "did_not_take_hold": dict(sorted(not_held.items())),
        "broken_rules": [each.broken for each in disturbed.outcomes if each.broken],
        "launches": found.launches,
        "lost": found.lost,
        "duplicated": found.duplicated,
        "changed": found.changed,
        "other_bytes": found.other_bytes,
        "files_missing": found.files_missing,
        "files_unknown": found.files_unknown,
        "examples": found.names,
        "result_differences": found.results,
        "undisturbed_seconds": round(whole.seconds, 1),
        "disturbed_seconds": round(disturbed.seconds, 1),
        "added_seconds": round(disturbed.seconds - whole.seconds, 1),
        "total_seconds": round(total_seconds, 1),
        "attempts": dict(disturbed.attempts),
        "failures": dict(disturbed.failures),
        "restarts": dict(disturbed.restarts),
        "retries_by_hand": disturbed.retries_by_hand,
        "not_ended": disturbed.leftover,
    }


def table(found: dict[str, Any]) -> list[str]:
    """The document for people."""
    lines = ["", "faults by kind (and how often one did not take hold)"]
    missed = found["did_not_take_hold"]
    for kind in sorted({*found["faults_by_kind"], *missed}):
        lines.append(f"  {kind:24} {found['faults_by_kind'].get(kind, 0):4}  ({missed.get(kind, 0)})")
    ended = ", ".join(f"{state} {count}" for state, count in sorted(found["attempts"].items()))
    failed = ", ".join(f"{name} {count}" for name, count in sorted(found["failures"].items()))
    restarts = ", ".join(f"{name} {count}" for name, count in found["restarts"].items())
    lines += [
        f"  {'all':24} {found['faults']:4}  of {found['kinds']} kinds; {found['faults_asked']} asked for",
        f"launches {found['launches']:,}: lost {found['lost']}, duplicated {found['duplicated']}, changed "
        f"{found['changed']}",
        f"files: missing {found['files_missing']}, unknown {found['files_unknown']}, with the same launches "
        f"in other bytes {found['other_bytes']}",
        *(f"  {each}" for each in found["examples"]),
        f"results that differ: {len(found['result_differences'])}",
        *(f"  {each}" for each in found["result_differences"]),
        f"attempts: {ended}; failures: {failed or 'none'}",
        f"restarts: {restarts}; campaigns taken up again by hand: {len(found['retries_by_hand'])}",
        *(f"  {each}" for each in found["retries_by_hand"]),
        f"time: undisturbed {found['undisturbed_seconds']} s, with faults {found['disturbed_seconds']} s, "
        f"added {found['added_seconds']} s; in all {found['total_seconds']} s; seed {found['seed']}",
        *(f"RULE BROKEN: {each}" for each in found["broken_rules"]),
        *([f"NOT ENDED: {found['not_ended']}"] if found["not_ended"] else []),
        "good: nothing lost, nothing doubled, no byte changed" if found["good"] else "NOT GOOD",
    ]
    return lines
