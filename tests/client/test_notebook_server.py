"""``import assay``: a campaign on a server of this process is that of the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import assay
from assay_sampling.errors import CampaignError, ParameterError
from tests.support.client import hand_made

pytestmark = pytest.mark.processes

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
