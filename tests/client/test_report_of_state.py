"""Reports from a state folder: without a server, also of a campaign that was left in the middle."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from assay_client.cli.verbs.measure.report import app
from assay_client.local import report_of_state
from assay_report.reading import parse_report
from assay_sampling.errors import CampaignError, ParameterError, StorageError
from assay_server.app import Server, ServerSettings
from tests.support.server.made_reports import made_report
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import StandInExecutor, eventually

CAMPAIGN = """\
campaign: {name}
workloads:
  - name: training
    recordings:
      - {{device: V100, light: a.json}}
      - {{device: A100, light: b.json}}
      - {{device: H100, light: c.json}}
"""


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The folder of a server that stopped while a campaign ran, beside one that had ended."""
    executor = StandInExecutor()
    with (
        closing(executor),
        tempfile.TemporaryDirectory(prefix="assay-") as short_path,
        Server(_settings(tmp_path, short_path), make_executor=lambda: executor) as server,
        PlayingAgent(server.addresses[0]) as agent,
    ):
        agent.register(("a", "b"))
        ended = agent.submit(CAMPAIGN.format(name="ended"))
        for _ in range(3):
            agent.play(made_segments((30,)), slot="a")
        eventually(lambda: agent.status(ended).state == "done", "the end of the campaign")
        agent.submit(CAMPAIGN.format(name="open"))
        agent.play(made_segments((30,)), slot="a")
        for slot in ("a", "b"):
            agent.work(slot, wait_ms=5_000)
    document = made_report(2)
    document["campaign"]["id"] = "ended-1"
    (tmp_path / "server" / "reports" / "ended-1" / "report.json").write_text(json.dumps(document))
    return tmp_path


def _settings(folder: Path, short_path: str) -> ServerSettings:
    return ServerSettings(state_dir=folder / "server", listen=(f"unix:{short_path}/s",))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but those in which SQLite notes who reads."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): path.read_bytes() for path in files if not path.name.endswith(("-shm", "-wal"))}


def test_a_campaign_that_has_not_ended_has_a_report_of_what_is_there(left: Path) -> None:
    before = contents(left / "server")
    report = report_of_state(left, "open-1")
    assert contents(left / "server") == before, "a state folder is only looked at"
    verdicts = report.verdicts
    assert verdicts is not None and not verdicts.complete
    assert (verdicts.asked.runs, verdicts.asked.runs_without_data) == (1, 2)
    assert [run.run_id for run in report.failed_runs] == ["open-1.0001", "open-1.0002"]
    lacking = [each for each in verdicts.excluded if each.what == "runs"]
    assert (sum(each.number for each in lacking), {each.reason for each in lacking}) == (2, {"running"})
    assert report_of_state(left / "server", "open-1") == report, "the server's own folder is the same"


def test_a_report_that_was_stored_is_taken_as_it_is(left: Path) -> None:
    stored = (left / "server" / "reports" / "ended-1" / "report.json").read_text()
    assert report_of_state(left, "ended-1") == parse_report(stored)


def test_what_is_not_there_is_said(left: Path, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="2 campaigns") as unclear:
        report_of_state(left)
    assert "ended-1, open-1" in unclear.value.remedy
    with pytest.raises(CampaignError, match="does not have it"):
        report_of_state(left, "other-1")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StorageError, match="no state of Assay"):
        report_of_state(tmp_path / "empty", "open-1")


def test_an_interactive_page_has_buttons_and_what_draws_figures(left: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    given = ["ended-1", "--state", str(left)]
    for flags, has_buttons in (([], False), (["--interactive"], True)):
        out = tmp_path / f"page{has_buttons}"
        assert runner.invoke(app, [*given, *flags, "-o", str(out)]).exit_code == 0
        page = (out / "report.html").read_text()
        assert ("<button data-figure=" in page, "<script" in page) == (has_buttons, has_buttons)
    refused = runner.invoke(app, [*given, "--interactive", "--format", "csv"])
    assert isinstance(refused.exception, ParameterError)


def test_the_verb_writes_every_form_from_a_state_folder(left: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    rows = report_of_state(left, "ended-1").rows
    shown = runner.invoke(app, ["ended-1", "--state", str(left), "--format", "csv"])
    assert shown.exit_code == 0, shown.output
    read = list(csv.DictReader(io.StringIO(shown.stdout)))
    assert [row["workload"] for row in read] == [row.workload for row in rows]
    for form, file in (
        ("html", "report.html"), ("md", "report.md"), ("tex", "report.tex"), ("json", "report.json"),
        ("csv", "report-tables/rows.csv"), ("parquet", "report-tables/rows.parquet"), ("text", "report.txt"),
    ):  # fmt: skip
        written = runner.invoke(
            app, ["ended-1", "--state", str(left), "--format", form, "-o", str(tmp_path / form)]
        )
        assert written.exit_code == 0, written.output
        assert (tmp_path / form / file).stat().st_size > 0
    table = pq.read_table(tmp_path / "parquet" / "report-tables" / "rows.parquet")
    assert table.column("error_percent").to_pylist() == [row.error_percent for row in rows]
    document = json.loads((tmp_path / "json" / "report.json").read_text())
    assert document["campaign"]["id"] == "ended-1" and document["verdicts"]["complete"] is True


def test_options_that_contradict_one_another_are_refused(left: Path) -> None:
    def refused(*words: str) -> str:
        result = CliRunner().invoke(app, list(words))
        assert isinstance(result.exception, ParameterError)
        return str(result.exception)

    assert "no campaign was named" in refused()
    assert "parquet is not for a terminal" in refused("ended-1", "--state", str(left), "--format", "parquet")
    assert "from a server" in refused("ended-1", "--state", str(left), "--server", "unix:/nowhere")
    assert "there is no format" in refused("ended-1", "--format", "docx")
