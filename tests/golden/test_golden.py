"""What every verb gives on small inputs, compared with what it gave when the golden set was made.

``comparing.py`` says what has to be equal. A difference is a regression, unless a decision says otherwise:
then the name of a key goes into a table there, or ``python -m tests.golden CASE`` keeps the new numbers.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from golden.cases import CASES
from golden.comparing import brought_up, comparable, differences, kept
from golden.running import workplace

EXPECTED = Path(__file__).parent / "expected"
# A server and an agent with four campaigns; ``test_states_left.py`` has the columns of one of them.
MARKS = {
    "run": [pytest.mark.processes],
    "doctor": [pytest.mark.processes],
    "lab": [pytest.mark.processes, pytest.mark.campaigns],
}


def test_each_case_has_its_file() -> None:
    assert sorted(CASES) == sorted(path.stem for path in EXPECTED.glob("*.json"))


@pytest.mark.parametrize(
    ("found", "lines"),
    [(3.0000000000000013, 0), (3.00000001, 1), (3, 1), ("3.0", 1), (None, 1), (float("inf"), 1)],
)
def test_only_the_last_bits_of_a_number_may_differ(found: object, lines: int) -> None:
    assert len(differences({"error_percent": 3.0}, {"error_percent": found})) == lines


def test_a_renewed_golden_file_leaves_out_added_keys_that_it_did_not_have() -> None:
    """``gpu_hours`` depends on the load of the machine; ``error_percent`` is what was renewed."""
    golden = [{"stdout": {"rows": [{"error_percent": 3.0, "verdict": "trust"}]}}]
    row = {"error_percent": 4.0, "verdict": "look", "gpu_hours": 0.07, "interval": {"low": 1}}
    found = [{"stdout": {"rows": [row], "eta": {"known": True}, "exit_code": 0}}]
    assert kept(found, "/work", golden) == [
        {"stdout": {"rows": [{"error_percent": 4.0, "verdict": "look"}], "exit_code": 0}}
    ]


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in CASES])
def test_numbers_identifiers_and_exit_codes_are_as_before(name: str) -> None:
    golden = json.loads((EXPECTED / f"{name}.json").read_text())
    # The path of a Unix socket has at most about 100 bytes: the folders of pytest are too deep.
    with tempfile.TemporaryDirectory(prefix="assay-") as folder, workplace(Path(folder)):
        found = json.loads(json.dumps(comparable(CASES[name](), folder)))
    lines = differences(brought_up(comparable(golden)), found)
    assert not lines, f"{len(lines)} differences:\n" + "\n".join(lines[:40])
