from typing import Any

from assay_client.cli.reporters.campaign import failure_lines


def run(run_id: str, cause: str | None) -> dict[str, Any]:
    if cause is None:
        return {"run_id": run_id, "failure": None}
    failure = {"subject": "ncu", "cause": cause, "failure_class": "tool_missing", "remedy": "install it"}
    return {"run_id": run_id, "failure": failure}


def test_a_failure_of_many_runs_is_told_once_with_the_runs_it_ended() -> None:
    runs = [run(f"c-1/r{number}", "not found") for number in range(7)]
    runs[3:3] = [run("c-1/other", "too old"), run("c-1/good", None)]
    assert failure_lines(runs) == [
        "c-1/r0, c-1/r1, c-1/r2, c-1/r3, c-1/r4 and 2 more runs: ncu: not found [tool_missing]; install it",
        "c-1/other: ncu: too old [tool_missing]; install it",
    ]
    assert failure_lines(runs[:1]) == ["c-1/r0: ncu: not found [tool_missing]; install it"]
