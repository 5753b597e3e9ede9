"""The verbs of a first hour: a file to start from, a dry run, what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_client.campaign_template import CAMPAIGN_TEMPLATE
from assay_client.local import campaign_schema
from assay_server.campaign_file.spec import Campaign
from tests.support.server.campaign_files import load_campaign

Assay = Callable[..., Any]


def test_init_writes_a_file_that_is_valid_as_it_stands(assay: Assay, tmp_path: Path) -> None:
    ended = assay("init", tmp_path)
    assert (ended.code, ended.stderr) == (0, "")
    text = (tmp_path / "campaign.yaml").read_text()
    assert text.splitlines()[0] == "# yaml-language-server: $schema=campaign.schema.json"
    assert load_campaign(text, "campaign.yaml").campaign == "my-campaign"
    assert json.loads((tmp_path / "campaign.schema.json").read_text())["title"] == "Assay campaign file"
    assert assay("plan", tmp_path / "campaign.yaml").code == 0


def test_what_the_template_comments_out_is_valid_too() -> None:
    lines = []
    for line in CAMPAIGN_TEMPLATE.splitlines():
        bare = line.strip()
        if bare.startswith(
            ("# - ", "#   - {", "#   light", "#   command", "#   environment", "#   timeout")
        ) or (bare.startswith(("# gpus:", "# detailed:", "# conditions:", "# repeats:", "# reference:"))):
            lines.append(line.replace("# ", "", 1))
        else:
            lines.append(line)
    campaign = load_campaign("\n".join(lines), "campaign.yaml")
    assert [w.name for w in campaign.workloads] == ["training", "hotspot"]
    assert campaign.workloads[1].environment == {"OMP_NUM_THREADS": "1"}
    assert (campaign.gpus, len(campaign.conditions), campaign.analysis.reference) == (
        ["V100-SXM2-16GB", "A100-SXM4-80GB"],
        3,
        "V100",
    )


@pytest.mark.parametrize("folder", ["there", "not-yet", "über uns"])
def test_init_of_a_folder_makes_it(assay: Assay, tmp_path: Path, folder: str) -> None:
    if folder == "there":
        (tmp_path / folder).mkdir()
    ended = assay("init", f"{tmp_path / folder}/")
    assert ended.stdout.splitlines()[0] == f"written to {tmp_path / folder / 'campaign.yaml'}"
    assert (tmp_path / folder / "campaign.yaml").is_file()


def test_several_faults_of_a_file_are_told_apart(assay: Assay, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("campaign: c\nseed: x\ngpus: V100\nworkloads: [{name: w, command: [./w.toml]}]\n")
    assert assay("plan", path).stderr.startswith(
        f"error: {path}:2: field seed: 'x' is not a whole number; {path}:3: field gpus: "
    )


def test_init_replaces_nothing_without_force(assay: Assay, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "mine.yaml"
    assert assay("init", path).code == 0
    path.write_text("mine")
    ended = assay("init", path)
    assert (ended.code, ended.stdout) == (8, "")
    assert (
        ended.stderr == f"error: {path}: it exists already; name another file, or replace it with --force\n"
    )
    assert path.read_text() == "mine"
    document = json.loads(assay("init", path, "--force", "--json").stdout)
    assert document == {
        "campaign_file": str(path),
        "schema_file": str(path.with_name("campaign.schema.json")),
    }
    assert path.read_text() == CAMPAIGN_TEMPLATE


def test_another_campaign_may_share_the_schema_but_not_replace_a_foreign_one(
    assay: Assay, tmp_path: Path
) -> None:
    assert [assay("init", tmp_path / name).code for name in ("a.yaml", "b.yaml")] == [0, 0]
    (tmp_path / "campaign.schema.json").write_text("{}")
    assert assay("init", tmp_path / "c.yaml").code == 8
    assert not (tmp_path / "c.yaml").exists()


def test_the_schema_knows_every_key_and_how_methods_are_written() -> None:
    schema = campaign_schema()
    assert set(schema["properties"]) == set(Campaign.model_fields)
    assert schema["required"] == ["campaign", "workloads"]
    assert schema["additionalProperties"] is False
    assert [kind["type"] for kind in schema["$defs"]["MethodSpec"]["anyOf"]] == ["string", "object"]
    assert schema["$defs"]["DetailedSpec"]["properties"]["features"]["anyOf"][0] == {"type": "string"}
    # The schema of the models must still be one that the next caller can have.
    assert campaign_schema() == schema


def test_plan_shows_runs_and_assumptions(assay: Assay, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "campaign: c\nsynthetic: true\ngpus: [V100]\nworkloads:\n  - {name: w, command: [./w.toml]}\n"
    )
    shown = assay("plan", path, "--assume", "launches=12345")
    assert (shown.code, shown.stderr) == (0, "")
    assert "3 runs in 5 slices; nothing was run" in shown.stdout
    assert "synthetic: no silicon produced these data" in shown.stdout
    assert "Assumptions, not measurements" in shown.stdout
    assert "12,345" in shown.stdout
    assert str(tmp_path / "w.toml") in shown.stdout
    document = json.loads(assay("plan", path, "--json").stdout)
    # True cycles in one pass, apart from features.
    passes = [(run["level"], run["passes"]) for run in document["runs"]]
    assert passes == [("detailed", 1), ("detailed", 3), ("light", 0)]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "arguments", "code"),
    [
        ("campaign: c\n", (), 4),
        (CAMPAIGN_TEMPLATE, ("--assume", "launches"), 2),
        (CAMPAIGN_TEMPLATE, ("--assume", "nope=1"), 2),
    ],
)
def test_plan_refuses(assay: Assay, tmp_path: Path, text: str, arguments: tuple[str, ...], code: int) -> None:
    (tmp_path / "c.yaml").write_text(text)
    ended = assay("plan", tmp_path / "c.yaml", *arguments)
    assert (ended.code, ended.stdout) == (code, "")
    assert assay("plan", tmp_path / "absent.yaml").code == 4


def test_doctor_ends_with_its_code_and_names_what_is_missing(assay: Assay, tmp_path: Path) -> None:
    nowhere = ("--server", f"unix:{tmp_path}/none", "--state", tmp_path)
    good = assay("doctor", "--for", "client", *nowhere)
    assert good.code == 0
    assert good.stdout.splitlines()[-1] == "nothing that a client needs is missing; notes are for other uses"
    ended = assay("doctor", "--for", "agent", "--json", *nowhere)
    assert ended.code == 10
    document = json.loads(ended.stdout)
    assert document["ready"] is False
    assert "server" in document["missing"]
    assert json.loads(ended.stderr)["error"]["type"] == "NotReadyError"
    shown = assay("doctor", "--for", "agent", *nowhere)
    assert shown.code == 10
    assert "-> start one with: assay-server" in shown.stdout
