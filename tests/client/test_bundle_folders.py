"""Which folders of this machine a campaign file sends along: those that its own text names, and no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_client.local import check_campaign
from assay_client.remote.bundles import names_folder, submit_with_files
from assay_client.remote.connection import Connection
from assay_protos import campaign_pb2
from assay_sampling.errors import CampaignError
from tests.support.client.scripted_server import FakeServer

CAMPAIGN = """\
campaign: sent
gpus: [V100]
detailed: none
# bundle: /commented/out
workloads:
  - {name: w, command: [./run.sh], bundle: ./files}
  - name: escaped
    bundle: "./fi\\x6ces"   # the folder above
    command: [./run.sh]
"""


@pytest.mark.parametrize(
    "line",
    [
        "    bundle: /a b/c",
        "bundle:   '/a b/c' # mine",
        '{"name": "w", "bundle":"/a b/c"}',
        "- {name: w, bundle: /a b/c, command: [x]}",
        "- bundle: /a b/c # mine",
    ],
)
def test_a_line_names_its_folder(line: str) -> None:
    assert names_folder(line, "/a b/c")
    for other in ("/", "/a b", "a b/c", "/a", "c", "", "mine", "w", "/a b/c "):
        assert not names_folder(line, other), other


@pytest.mark.parametrize(
    "line",
    [
        "# bundle: x",
        "name: w # bundle: x",
        "bundles: x",
        "my-bundle: x",
        "bundle: 'x",
        "bundle: xy",
        "bundle: y, x",
    ],
)
def test_other_lines_name_no_folder(line: str) -> None:
    assert not names_folder(line, "x")


@given(st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable()))
def test_any_folder_can_be_named_in_quotes(folder: str) -> None:
    assert names_folder(f"  bundle: {json.dumps(folder, ensure_ascii=False)}  # why", folder)
    assert names_folder("- {bundle: '" + folder.replace("'", "''") + "'}", folder)


@pytest.fixture
def connection(server: FakeServer) -> Iterator[Connection]:
    with Connection(server.address) as made:
        yield made


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("/", 6),
        (".", 6),
        ("./", 6),
        ("files", 6),
        ("./files", 5),
        ("./files", 0),
        ("./files", 8),
        ("./files", 1 << 30),
        ("/commented/out", 4),
        ("/root/.ssh", 6),
    ],
)
def test_a_server_that_asks_for_another_folder_gets_nothing(
    folder: str, line: int, server: FakeServer, connection: Connection, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "run.sh").write_text("exit 0\n")
    asked = [campaign_pb2.BundleFolder(folder=folder, workload="w", line=line)]
    server.script.submit = lambda _: campaign_pb2.SubmitResponse(folders=asked)
    with pytest.raises(CampaignError, match="does not name it") as caught:
        submit_with_files(connection, CAMPAIGN, tmp_path / "c.yaml")
    assert caught.value.subject == f"{tmp_path}/c.yaml:{line}" and repr(folder) in caught.value.cause
    [request] = server.script.requests
    assert request.asks_for_folders and not request.bundles


def test_a_folder_that_is_asked_for_again_and_again_is_packed_once(
    server: FakeServer, connection: Connection, tmp_path: Path
) -> None:
    """And text that ends lines as no editor does is counted as the server counts it."""
    text = CAMPAIGN.replace("\n", "\r\n") + "# \x0b \x1c\u2028  - {name: v, bundle: ./files, command: [x]}\n"
    asked = [campaign_pb2.BundleFolder(folder="./files", workload="w", line=11)] * 2000
    server.script.submit = lambda _: campaign_pb2.SubmitResponse(folders=asked)
    with pytest.raises(CampaignError, match="not a folder"):
        submit_with_files(connection, text, tmp_path / "c.yaml")


def test_a_server_of_an_earlier_release_takes_files_without_bundles(
    server: FakeServer, connection: Connection, tmp_path: Path
) -> None:
    assert submit_with_files(connection, "campaign: c\n", tmp_path / "c.yaml").campaign_id == "c-1"


@pytest.mark.parametrize("made", ["nothing", "a file", "an empty folder", "a link in it"])
def test_plan_and_submit_name_the_line_of_a_folder_that_cannot_be_sent(
    made: str, server: FakeServer, connection: Connection, tmp_path: Path
) -> None:
    path, folder = tmp_path / "c.yaml", tmp_path / "files"
    path.write_text(CAMPAIGN)
    if made == "a file":
        folder.write_text("")
    elif made != "nothing":
        folder.mkdir()
    if made == "a link in it":
        (folder / "leads-away").symlink_to("/etc/passwd")
    with pytest.raises(CampaignError) as planned:
        check_campaign(path).refuse(here=False)
    assert planned.value.subject == f"{path}:6" and "workloads[0].bundle" in planned.value.cause
    assert f"{path}:8" in planned.value.cause, "the second workload names it, too"
    asked = [campaign_pb2.BundleFolder(folder="./files", workload="w", line=6)]
    server.script.submit = lambda _: campaign_pb2.SubmitResponse(folders=asked)
    with pytest.raises(CampaignError, match="workload 'w'") as caught:
        submit_with_files(connection, CAMPAIGN, path)
    assert caught.value.subject == f"{path}:6" and caught.value.remedy
