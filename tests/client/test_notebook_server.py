"""``import assay``: a campaign on a server of this process is that of the command line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import assay
from assay_client.remote.connection import Connection
from assay_core.records.archive import LaunchesAsked, LaunchesPart
from assay_sampling.errors import CampaignError, ParameterError, ServerUnreachableError, StorageError
from assay_server.rpc.handlers import published
from tests.support.client import hand_made

# One campaign for all tests here: they stay on one worker.
pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("notebook_server")]

CAMPAIGN = """\
campaign: two
synthetic: true
seed: 3
workloads:
  - name: two <b>GPUs</b>
    recordings:
      - {device: V100, light: v100.json}
      - {device: A100, light: a100.json}
analysis:
  methods:
    - random: {launches: 5}
    - photon
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("campaign")
    hand_made.write_kineto(made / "v100.json", 60)
    hand_made.write_kineto(made / "a100.json", 60, slower=0.5, gpu=hand_made.A100)
    (made / "campaign.yaml").write_text(CAMPAIGN)
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[assay.Server]:
    with assay.Server.local(folder / "state") as found:
        yield found


@pytest.fixture(scope="module")
def campaign(server: assay.Server, folder: Path) -> assay.Campaign:
    return server.submit(folder / "campaign.yaml").wait()


def test_the_table_of_methods_is_that_of_the_report(campaign: assay.Campaign) -> None:
    assert campaign.state == "done"
    rows = campaign.report().to_document()["rows"]
    found = campaign.to_arrow().to_pylist()
    assert len(found) == len(rows) == 4
    for ours, theirs in zip(found, rows, strict=True):
        assert ours["sm_percent"] == theirs["condition"]["sm_percent"]
        for name in ("workload", "device", "method", "status", "error_percent", "speedup", "representatives"):
            assert ours[name] == theirs[name]
    assert {each["status"] for each in found} == {"ok", "failed"}
    assert campaign.to_pandas()["error_percent"].tolist()[0] == rows[0]["error_percent"]


def test_a_selection_of_the_report_can_be_scored_here(campaign: assay.Campaign, folder: Path) -> None:
    row = next(each for each in campaign.to_arrow().to_pylist() if each["selection"])
    selection = campaign.selection(row["selection"])
    assert selection.error_percent == row["error_percent"]
    profile = assay.Profile.read(folder / "v100.json", synthetic=True)
    assert selection.evaluate(profile).error_percent == pytest.approx(row["error_percent"])
    with pytest.raises(ParameterError, match="the report has none 'nothing'"):
        campaign.selection("nothing")


def test_a_server_lists_its_campaigns_and_their_runs(server: assay.Server, campaign: assay.Campaign) -> None:
    assert [each.id for each in server.campaigns()] == [campaign.id]
    (listed,) = server.to_arrow().to_pylist()
    assert (listed["campaign_id"], listed["state"], listed["runs_done"]) == (campaign.id, "done", 2)
    assert campaign.runs()["launches"].to_pylist() == [60, 60]
    assert json.dumps(campaign.status())
    assert server.campaign(campaign.id).state == "done"
    with pytest.raises(CampaignError):
        server.campaign("nobody-1")


def test_names_of_workloads_are_text(server: assay.Server, campaign: assay.Campaign) -> None:
    page = campaign._repr_html_()
    assert "<b>" not in page
    assert "two &lt;b&gt;GPUs&lt;/b&gt;" in page
    assert "random" in page
    assert campaign.id in server._repr_html_()


def test_records_are_the_launches_that_were_measured(campaign: assay.Campaign, folder: Path) -> None:
    records = campaign.records("two <b>GPUs</b>")
    assert (len(records.runs), records.launches) == (2, 120)
    (run,) = campaign.records(device="A100").runs
    found = campaign.records(run=run)
    measured = assay.Profile.read(folder / "a100.json", synthetic=True)
    table = found.to_arrow()
    assert table["run_id"].unique().to_pylist() == [run]
    assert table.drop_columns("run_id").equals(measured.to_arrow())
    assert found.to_profile().to_arrow().equals(measured.to_arrow())
    assert found.to_profile().origin == "synthetic"
    only = records.to_pandas(["kernel", "duration_ns"])
    assert list(only.columns) == ["run_id", "kernel", "duration_ns"]
    assert only.groupby("run_id", observed=True)["duration_ns"].sum().tolist() == [
        sum(campaign.records(run=each).to_arrow()["duration_ns"].to_pylist()) for each in records.runs
    ]
    assert "<b>" not in records._repr_html_()


def test_records_that_cannot_be_one_profile_are_named(campaign: assay.Campaign) -> None:
    with pytest.raises(ParameterError, match=r"2 light runs.*two-1\.0000"):
        campaign.records().to_profile()
    with pytest.raises(ParameterError, match="no run with launches has device_kind 'H100'"):
        campaign.records(device="H100")
    with pytest.raises(ParameterError, match="no column 'nothing'"):
        campaign.records().to_arrow(["nothing"])
    for cursor in (
        "{",
        "[]",
        '{"run_id": "two-1.0000"}',
        '{"run_id": 1, "slice": 0, "launch": 0, "content_hash": ""}',
    ):
        with pytest.raises(ParameterError, match="cursor"):
            campaign.records().batches(cursor=cursor)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "_LEAST_LAUNCHES", 25)
    monkeypatch.setattr(published, "_PART_BYTES", 1)


def rows(batches: Iterable[pa.RecordBatch]) -> list[Any]:
    return [(row["run_id"], row["launch"]) for batch in batches for row in batch.to_pylist()]


@pytest.mark.usefixtures("small_parts")
def test_another_process_goes_on_from_a_cursor(campaign: assay.Campaign) -> None:
    records = campaign.records()
    whole = rows(records.batches())
    assert len(whole) == 120
    places = [("", 0)]
    stream = records.batches(["launch"])
    for batch in stream:
        places.append((stream.cursor, places[-1][1] + batch.num_rows))
    assert [sent for _, sent in places] == [0, 25, 50, 60, 85, 110, 120]
    for cursor, sent in places:
        assert rows(records.batches(["launch"], cursor=cursor)) == whole[sent:]


@pytest.mark.usefixtures("small_parts")
def test_a_broken_stream_goes_on_where_it_was(
    campaign: assay.Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rows(campaign.records().batches())
    asked = []
    unbroken = Connection.launches

    def breaking(self: Connection, wanted: LaunchesAsked) -> Iterator[LaunchesPart]:
        """Two parts a stream; then the server, or the way to it, is gone, or it was cut off."""
        asked.append(wanted.cursor.launch)
        for number, part in enumerate(unbroken(self, wanted)):
            if number == 2:
                cut_off = len(asked) % 2 == 0
                raise StorageError("a", "cut off") if cut_off else ServerUnreachableError("a", "gone")
            yield part

    monkeypatch.setattr(Connection, "launches", breaking)
    assert rows(campaign.records().batches()) == whole
    assert asked == [0, 25, 50, 0, 25, 50]
    monkeypatch.setattr(Connection, "launches", gone)
    with pytest.raises(ServerUnreachableError):
        next(campaign.records().batches())


def gone(_self: Connection, _wanted: LaunchesAsked) -> Iterator[LaunchesPart]:
    raise ServerUnreachableError("a", "gone")
    yield LaunchesPart()


def test_the_figures_of_a_report_are_at_hand(campaign: assay.Campaign) -> None:
    plots = campaign.plots()
    assert len(plots) >= 3
    assert all(plot.title and plot.caption for plot in plots)
