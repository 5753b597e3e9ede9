"""A method of another package is selected, compared, documented, planned and reported as ours are.

The example is installed as pip would do it: its module and its entry points in a folder on the path.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import assay as notebook
from assay_client import pages
from tests.support.client import hand_made

EXAMPLE = Path(__file__).parents[2] / "examples" / "embedding_sampler"
NONSENSE = '''
import dataclasses
import numpy as np
from pydantic import BaseModel
from assay_sampling.methods.base import grouped_selection
class Parameters(BaseModel):
    what: str = ""
class Odd:
    """Gives what it is asked for."""
    name = "odd"
    parameters = Parameters
    def select(self, profile, parameters, *, seed):
        if parameters.what == "crash":
            raise ZeroDivisionError("division")
        if parameters.what == "exit":
            raise SystemExit(3)
        if parameters.what == "number":
            return 3
        labels = np.zeros(len(profile.whole), np.int64)
        row = {"outside": 10**6, "before": -1}.get(parameters.what, 0)
        weight = {"nan": np.nan, "negative": -1.0}.get(parameters.what, float(len(labels)))
        made = grouped_selection(profile, "odd", parameters, seed, labels=labels, rows=np.array([row]),
                                 weights=np.array([weight]))
        if parameters.what == "labels":
            made = dataclasses.replace(made, labels=labels + 7)
        if parameters.what == "short":
            made = dataclasses.replace(made, labels=labels[1:])
        return made
'''
Assay = Callable[..., Any]


def install(folder: Path, module: Path | str, project: dict[str, Any]) -> None:
    """What ``pip install --no-deps --target`` leaves of a package of one module."""
    (name,) = project["modules"]
    if isinstance(module, Path):
        shutil.copy(module, folder / f"{name}.py")
    else:
        (folder / f"{name}.py").write_text(module)
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = "".join(f"{each} = {value}\n" for each, value in project["points"].items())
    (info / "entry_points.txt").write_text(f"[assay.samplers]\n{points}")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages: the example, a method that gives nonsense, and one that is broken."""
    folder = tmp_path / "site"
    folder.mkdir()
    told = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    project = told["project"]
    points, modules = project["entry-points"]["assay.samplers"], told["tool"]["setuptools"]["py-modules"]
    install(folder, EXAMPLE / "embedding_sampler.py",
            {"name": project["name"], "version": project["version"], "points": points,
             "modules": modules})  # fmt: skip
    install(folder, NONSENSE, {"name": "odd-package", "version": "2", "points": {"odd": "odd_method:Odd"},
                               "modules": ["odd_method"]})  # fmt: skip
    install(folder, "raise SystemExit('no licence')", {
        "name": "broken-package", "version": "1", "points": {"broken": "broken_method:Sampler"},
        "modules": ["broken_method"]})  # fmt: skip
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")  # for the processes that analyse
    pages.pages.cache_clear()
    yield folder
    pages.pages.cache_clear()
    for name in ("embedding_sampler", "odd_method", "broken_method"):
        sys.modules.pop(name, None)


@pytest.fixture
def light(tmp_path: Path) -> Path:
    return hand_made.write_kineto(tmp_path / "light.json", 60)


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """The kind of each launch as a point of a plane, with a little noise."""
    kinds = np.array(hand_made.kinds(60))
    noise = np.random.default_rng(0).normal(0, 0.01, (60, 2))
    path = tmp_path / "vectors.npy"
    np.save(path, np.stack([kinds, -kinds], axis=1) + noise)
    return path


@pytest.mark.usefixtures("site")
def test_the_example_selects_and_has_its_help_and_page(assay: Assay, light: Path, vectors: Path) -> None:
    ended = assay("select", "embedding", light, "-p", f"vectors={vectors}", "-p", "groups=3", "--json")
    assert ended.code == 0, ended.stderr
    document = json.loads(ended.stdout)
    kinds = np.bincount(hand_made.kinds(60))
    assert sorted(group["launches"] for group in document["groups"]) == sorted(kinds.tolist())
    assert document["error_percent"] == pytest.approx(0, abs=1e-9)
    made = notebook.Profile.read(light).select("embedding", vectors=str(vectors), groups=3)
    assert made.to_dict() == document
    csv = vectors.with_suffix(".csv")
    np.savetxt(csv, np.load(vectors), delimiter=",")
    again = notebook.Profile.read(light).select("embedding", vectors=str(csv), groups=3)
    assert again.to_arrow().equals(made.to_arrow())
    shown = assay("select", "embedding", "--help").stdout
    assert "Groups that k-means makes of them" in shown
    assert "groups=8" in shown
    assert "embedding" in assay("select", "--help").stdout
    page = assay("docs", "embedding").stdout
    assert "# embedding" in page
    assert "assay-embedding-sampler" in page
    assert "| `groups` | 8 | whole number >= 1 |" in page
    listed = {each["name"]: each for each in json.loads(assay("docs", "--json").stdout)["pages"]}
    assert listed["embedding"]["about"] == "Groups launches by vectors from a file."
    assert listed["broken"]["about"] == "it cannot be loaded"


@pytest.mark.usefixtures("site")
def test_input_that_does_not_fit_is_refused_by_the_example(assay: Assay, light: Path, vectors: Path) -> None:
    few = vectors.with_name("few.npy")
    np.save(few, np.load(vectors)[:7])
    ended = assay("select", "embedding", light, "-p", f"vectors={few}")
    assert (ended.code, "shape (7, 2), and there are 60 launches" in ended.stderr) == (3, True)
    assert assay("select", "embedding", light).code == 2
    wrong = assay("select", "embedding", light, "-p", "group=3")
    assert "did you mean groups" in wrong.stderr


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("what", "cause"),
    [
        ("nan", "the weight nan"), ("negative", "the weight -1"), ("outside", "row 1000000 of 60 rows"),
        ("before", "row -1 of 60 rows"), ("number", "int, not a Selection"), ("labels", "labels from 7 to 7"),
        ("short", "labels of shape (59,)"), ("crash", "ZeroDivisionError: division"),
        ("exit", "SystemExit: 3"),
    ],
)  # fmt: skip
def test_nonsense_of_a_plug_in_names_its_package(assay: Assay, light: Path, what: str, cause: str) -> None:
    ended = assay("select", "odd", light, "-p", f"what={what}")
    assert ended.code == 7
    text = " ".join(ended.stderr.split())
    assert "method 'odd' of the package odd-package" in text
    assert cause in text


@pytest.mark.usefixtures("site")
def test_a_comparison_goes_on_without_those_that_fail(assay: Assay, light: Path, vectors: Path) -> None:
    given = ("-m", "random", "-m", "embedding", "-m", "odd", "-m", "broken")
    parameters = ("-p", f"embedding.vectors={vectors}", "-p", "odd.what=nan")
    document = json.loads(assay("compare", light, *given, *parameters, "--trials", 30, "--json").stdout)
    states = {each["method"]: each["status"] for each in document["methods"]}
    assert states == {"random": "ok", "embedding": "ok", "odd": "failed", "broken": "refused"}
    reasons = {each["method"]: each["reason"] for each in document["methods"]}
    assert "odd-package" in reasons["odd"]
    assert "no licence" in reasons["broken"]


CAMPAIGN = """\
campaign: embedded
synthetic: true
detailed: none
workloads:
  - name: training
    recordings:
      - {{device: V100, light: light.json}}
analysis:
  methods:
    - embedding: {{vectors: {vectors}, groups: 3}}
    - odd: {{what: nan}}
    - random: {{launches: 5}}
"""


@pytest.mark.processes
@pytest.mark.usefixtures("site")
def test_a_campaign_plans_and_reports_it(assay: Assay, light: Path, vectors: Path) -> None:
    campaign = light.with_name("campaign.yaml")
    campaign.write_text(CAMPAIGN.format(vectors=vectors))
    assert assay("plan", campaign).code == 0
    ended = assay("run", campaign, "--state", light.with_name("state"), "--json")
    assert ended.code == 0, ended.stderr
    report = json.loads(ended.stdout)["report"]
    states = {row["method"]: row["status"] for row in report["rows"]}
    assert states == {"embedding": "ok", "odd": "failed", "random": "ok"}
    (row,) = (row for row in report["rows"] if row["method"] == "embedding")
    assert (row["groups"], row["parameters"]["groups"]) == (3, 3)
    assert row["error_percent"] == pytest.approx(0, abs=1e-9)
    (failed,) = (row for row in report["rows"] if row["method"] == "odd")
    assert "odd-package" in failed["reason"]
    assert report["versions"]["assay-embedding-sampler"] == "0.1.0"
    campaign.write_text(CAMPAIGN.format(vectors=vectors).replace("groups: 3", "group: 3"))
    wrong = assay("plan", campaign)
    assert wrong.code == 4
    assert "embedding has no such parameter; it has vectors, groups" in " ".join(wrong.stderr.split())
