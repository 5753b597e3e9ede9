"""``assay init`` of commands and suites: files that run, and what is refused before anything is written."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_client import new_campaign
from assay_client.pages import suites
from assay_server.campaign_file.spec import Campaign
from tests.support.server.campaign_files import load_campaign

Assay = Callable[..., Any]
STENCIL = Path(__file__).parents[2] / "campaigns" / "virtual" / "stencil.toml"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with a workload file, on a machine without a GPU."""
    (tmp_path / "stencil.toml").write_bytes(STENCIL.read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(new_campaign, "gpu_names_here", lambda: ())
    return tmp_path


def campaign_at(path: Path) -> Campaign:
    return load_campaign(path.read_text(), path.name)


def test_a_workload_file_gets_a_synthetic_campaign_without_a_warning(assay: Assay, here: Path) -> None:
    ended = assay("init", "mine.yaml", "--command", "stencil.toml --emit-nvtx", "--json")
    assert (ended.code, ended.stderr) == (0, "")
    document = json.loads(ended.stdout)
    assert (document["synthetic"], document["gpus"], document["warnings"]) == (True, ["V100"], [])
    campaign = campaign_at(here / "mine.yaml")
    assert (campaign.campaign, campaign.synthetic, campaign.gpus) == ("stencil", True, ["V100"])
    assert [w.command for w in campaign.workloads] == [["stencil.toml", "--emit-nvtx"]]
    assert campaign.analysis.reference == "V100"
    assert assay("plan", "mine.yaml").code == 0


def test_several_commands_on_several_gpus(assay: Assay, here: Path) -> None:
    programs = ["python train.py --epochs 1", "python train.py --epochs 2", "./größe 'a b' \"c: d # e\""]
    given = [word for program in programs for word in ("--command", program)]
    ended = assay("init", "c.yaml", *given, "--gpus", "RTX 3070, H100 PCIe", "--gpus", "RTX 3070")
    assert (ended.code, ended.stderr) == (0, "")
    campaign = campaign_at(here / "c.yaml")
    assert (campaign.synthetic, campaign.gpus) == (False, ["RTX 3070", "H100 PCIe"])
    assert [w.name for w in campaign.workloads] == ["train", "train-2", "gr-e"]
    assert [w.command for w in campaign.workloads] == [shlex.split(program) for program in programs]
    assert "the program" in ended.stdout
    assert "is not on this machine" in ended.stdout


def test_a_program_is_found_from_the_folder_of_the_file(assay: Assay, here: Path) -> None:
    ended = assay("init", "deep/er/c.yaml", "--command", "stencil.toml", "--json")
    assert json.loads(ended.stdout)["warnings"] == []
    assert campaign_at(here / "deep/er/c.yaml").workloads[0].command == ["../../stencil.toml"]


def test_without_gpus_those_of_this_machine_are_taken(
    assay: Assay, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_campaign, "gpu_names_here", lambda: ("H100 80GB HBM3", "Prototype 9"))
    assert assay("init", "a.yaml", "--command", "python x.py").code == 0
    assert campaign_at(here / "a.yaml").gpus == ["H100 80GB HBM3", "Prototype 9"]
    # A GPU that no list knows may be named where it is.
    assert assay("init", "b.yaml", "--command", "python x.py", "--gpus", "Prototype 9").code == 0


@pytest.mark.parametrize("suite", suites())
def test_a_suite_for_other_gpus(assay: Assay, here: Path, suite: str) -> None:
    ended = assay("init", "c.yaml", "--suite", suite, "--gpus", "RTX 3070", "--gpus", "A30")
    assert (ended.code, ended.stderr) == (0, "")
    campaign = campaign_at(here / "c.yaml")
    shipped = campaign_at(STENCIL.parents[1] / f"{suite}.yaml")
    assert campaign.gpus == ["RTX 3070", "A30"]
    assert campaign.analysis.reference == "RTX 3070"
    assert campaign.workloads == shipped.workloads
    assert "# Get it" in (here / "c.yaml").read_text()


def test_the_suite_of_virtual_gpus_has_its_workloads_next_to_it(assay: Assay, here: Path) -> None:
    assert assay("init", "v", "--suite", "virtual", "--gpus", "A100").code == 0
    campaign = campaign_at(here / "v" / "campaign.yaml")
    assert (campaign.synthetic, campaign.gpus) == (True, ["A100"])
    assert all((here / "v" / str(w.command[0])).is_file() for w in campaign.workloads if w.command)
    # The same again beside it needs no --force, but another workload file is not replaced.
    assert assay("init", "v/again.yaml", "--suite", "virtual").code == 0
    (here / "v" / "virtual" / "solver.toml").write_text("mine")
    ended = assay("init", "v/more.yaml", "--suite", "virtual")
    assert (ended.code, ended.stderr.partition(": it exists already; ")[0]) == (
        8,
        "error: v/virtual/solver.toml",
    )
    assert not (here / "v" / "more.yaml").exists()


REFUSED = [
    (["--command", " "],
     "--command: the command is empty; write the program with its arguments: --command './train 10'"),
    (["--command", "a 'b"],
     "--command: \"a 'b\" is not a command (No closing quotation); quote it as a shell would read it"),
    (["--suite", "rodina"],
     "--suite: there is no suite 'rodina'; there are rodinia, parboil, polybench, pytorch, virtual"),
    (["--command", "stencil.toml", "--gpus", "V1000"],
     "--gpus: there is no virtual GPU 'V1000'; use one of V100, RTX 2060, RTX 3070, A100, H100"),
    (["--command", "./x", "--gpus", "RTX 3700"],
     "--gpus: no known GPU is called 'RTX 3700' (did you mean '"),
    (["--command", "./x", "--gpus", "V100"],
     "--gpus: no known GPU is called 'V100' (did you mean 'V100-SXM2-16GB', "),
    (["--command", "./x", "--gpus", "A30,"],
     "--gpus: a name is empty; separate names by commas: "),
    (["--command", "./x"],
     "--gpus: this machine has no GPU to name; name those of your boxes, "),
    (["--gpus", "A30"], "--gpus: there is nothing to measure on them; name it: --command 'python train.py'"),
    (["--suite", "rodinia", "--command", "./x"], "--suite: a suite has its own commands; "),
    (["--command", "stencil.toml", "--command", "./x"],
     "--command: './x' is not a workload file, and only those run on virtual GPUs; "),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_is_refused_is_said_and_nothing_is_written(
    assay: Assay, here: Path, options: list[str], message: str
) -> None:
    ended = assay("init", "c.yaml", *options)
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"error: {message}")
    assert [path.name for path in here.iterdir() if path.suffix == ".yaml"] == []


def test_an_existing_file_is_not_replaced(assay: Assay, here: Path) -> None:
    (here / "c.yaml").write_text("mine")
    ended = assay("init", "c.yaml", "--command", "stencil.toml")
    assert (ended.code, ended.stderr) == (
        8,
        "error: c.yaml: it exists already; name another file, or replace it with --force\n",
    )
    assert assay("init", "c.yaml", "--command", "stencil.toml", "--force").code == 0
