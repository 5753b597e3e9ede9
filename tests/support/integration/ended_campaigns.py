"""What a campaign of a lab of processes came to, to be compared with one that nothing disturbed."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from assay_core.records.campaign import AttemptState
from assay_server.database.opening import open_database
from assay_server.store.model import SliceState
from tests.support.integration.harness import Lab


@dataclass(frozen=True)
class Ended:
    """What a campaign came to: its report in two forms, and the hashes of its published files."""

    forms: tuple[str, ...]
    files: list[str]


def ended(made: Lab, campaign_id: str, *, tried_once: bool = False) -> Ended:
    """Wait for the campaign and stop its lab, whose server's records are in its state folder.

    Fails unless each slice was published once, by one attempt, and no other file is kept; with
    ``tried_once`` also if there were further attempts.
    """
    assert made.wait_for(campaign_id, 400) == "done", made.logs()
    forms = tuple(made.assay("report", campaign_id, "--format", form).stdout for form in ("json", "html"))
    assert made.stop("agent") == 0, made.logs()
    assert made.stop("server") == 0, made.logs()
    with closing(open_database(made.server_state)) as store, store.snapshot() as read:
        attempts = read.attempts_in(tuple(AttemptState))
        pieces = [piece for run in read.runs(campaign_id) for piece in read.slices(run.run_id)]
    assert {piece.state for piece in pieces} == {SliceState.DONE}
    published = [each for each in attempts if each.state is AttemptState.PUBLISHED]
    assert not tried_once or published == attempts
    by_attempts = [(each.key.run_id, each.key.slice_index) for each in published]
    assert sorted(by_attempts) == sorted((piece.run_id, piece.index) for piece in pieces)
    stored = {str(path.relative_to(made.server_state / "records")) for path in files_in(made, "records")}
    assert stored == {piece.file for piece in pieces}, "files that no slice names, or slices without a file"
    assert files_in(made, "staging") == []
    return Ended(forms, sorted(piece.content_hash for piece in pieces))


def files_in(made: Lab, folder: str) -> list[Path]:
    """The files below a folder of the server's state."""
    return [path for path in (made.server_state / folder).rglob("*") if path.is_file()]
