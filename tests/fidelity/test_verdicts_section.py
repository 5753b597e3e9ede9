"""The short form of the section on verdicts, and that its bounds can be missed."""

from __future__ import annotations

from tests.fidelity import verdicts
from tests.fidelity.section import Effort
from tests.fidelity.verdicts import Case, Judged, section


def test_verdicts_of_selections_that_have_not_seen_the_other_gpu() -> None:
    found = section(Effort.SHORT)
    assert found.rows
    assert not found.missed, found.markdown()


def test_wrong_verdicts_are_missed_bounds() -> None:
    right = [Judged("w", Case("stem", {}), "trust", 1.0, 2.0)] * 6 + [
        Judged("w", Case("stem", {}), "do_not", 9.0, 20.0)
    ] * 8
    assert verdicts.missed_bounds(right) == []
    trusted_beyond = [*right, Judged("w", Case("pks", {}), "trust", 42.6, 42.6)]
    assert len(verdicts.missed_bounds(trusted_beyond)) == 1
    # One of seven may be chance, four of ten is not.
    assert verdicts.missed_bounds(trusted_beyond, beyond_chance=True) == []
    assert len(verdicts.missed_bounds([*trusted_beyond, *trusted_beyond[-1:] * 3], beyond_chance=True)) == 1
    assert verdicts.trusted_too_far(trusted_beyond) == ["w: pks was trusted, and is 42.6 % off"]
    timid = [*right, *[Judged("w", Case("stem", {}), "total_only", 1.0, 2.0)] * 5]
    assert len(verdicts.missed_bounds(timid)) == 1
    silent = [*right, *[Judged("w", Case("stem", {}), "total_only", 1.0, 9.0)] * 3]
    assert len(verdicts.missed_bounds(silent)) == 1
