"""The documents that people and scripts rely on say what the programs do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay_sampling.documents.selection import SelectionDocument
from assay_sampling.methods.registry import samplers
from assay_server.campaign_file.spec import Campaign
from tests.support.client import hand_made
from tests.support.server.campaign_files import load_campaign

DOCS = Path(__file__).parents[2] / "docs"
Assay = Callable[..., Any]


def keys(value: Any, prefix: str = "") -> Iterator[str]:
    """Paths of all leaves; an item of a list is ``[]``."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from keys(item, f"{prefix}.{name}" if prefix else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for item in value:
            yield from keys(item, f"{prefix}[]")
    else:
        yield prefix


def documented(text: str) -> set[str]:
    """Everything in code marks."""
    return set(re.findall(r"`([^`\n]+)`", text))


def is_documented(key: str, names: set[str]) -> bool:
    """A key is documented by itself, or by a part that it lies in."""
    parts = key.split(".")
    paths = [".".join(parts[: end + 1]) for end in range(len(parts))]
    return any(path in names or path.removesuffix("[]") in names for path in paths)


def selection_and_evaluation() -> str:
    return "".join((DOCS / f"{page}-format.md").read_text() for page in ("selection", "evaluation"))


def undocumented(document: dict[str, Any], text: str) -> set[str]:
    names = documented(text)
    return {key for key in keys(document) if not is_documented(key, names)}


def unknown_to_the_model(document: dict[str, Any]) -> set[str]:
    """Keys of a selection that the page, which is made from the model, does not have."""
    known = SelectionDocument.model_validate(document)
    read = set(keys(known.model_dump(mode="json")))
    # A note of a reader may be a sentence; the model has it as an object.
    return set(known.model_extra or {}) | set(keys(document)) - read - {"profile.notes", "notes"}


def test_every_key_of_a_selection_is_documented(assay: Assay, tmp_path: Path) -> None:
    text = selection_and_evaluation()
    window = hand_made.write_raw_page(tmp_path / "window.csv", 40)
    light = hand_made.write_kineto(tmp_path / "light.json", 60)
    path = tmp_path / "selection.json"
    document = json.loads(
        assay("select", "pks", window, "--light", light, "-p", "model=sgd", "-o", path, "--json").stdout
    )
    assert document["two_level"]["models"]
    assert unknown_to_the_model(document) == set()
    evaluated = json.loads(assay("evaluate", path, light, "--json").stdout)
    assert undocumented(evaluated, text) == set()


@pytest.mark.parametrize(
    ("method", "parameter"),
    [
        ("sieve", "theta_sweep=true"), ("stem", "epsilon_percent=1"),
        ("tbpoint", "sweep=true"), ("photon", "bbv=VECTORS"), ("random", "repetitions=2"),
        ("systematic", "repetitions=2"), ("stratified", "allocation=neyman"),
        ("first_instructions", "instructions=1e5"), ("single_iteration", "iteration_launches=5"),
    ],
)  # fmt: skip
def test_every_key_that_a_method_adds_is_documented(
    assay: Assay, tmp_path: Path, method: str, parameter: str
) -> None:
    page = hand_made.write_raw_page(tmp_path / "page.csv", 40)
    vectors = tmp_path / "bbv.csv"
    vectors.write_text("launch,block,count,warps\n" + "".join(f"{row},0,{row},4\n" for row in range(40)))
    given = parameter.replace("VECTORS", str(vectors))
    document = json.loads(assay("select", method, page, "-p", given, "--json").stdout)
    assert document["parameters"].keys() <= {"cost", *samplers()[method].parameters.model_fields}
    assert unknown_to_the_model(document) == set()


def test_the_example_selection_has_the_keys_of_a_real_one(assay: Assay, tmp_path: Path) -> None:
    text = (DOCS / "selection-format.md").read_text()
    (example,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    page = hand_made.write_raw_page(tmp_path / "page.csv", 40)
    real = json.loads(assay("select", "pks", page, "-p", "mixing=allowed", "--json").stdout)
    missing = set(keys(real)) - set(keys(json.loads(example)))
    assert missing == {f"sweep[].{name}" for name in ("k", "error_percent", "speedup", "inertia")} | {
        "pca_components"
    }
    assert set(keys(json.loads(example))) <= set(keys(real))


def test_the_csv_header_is_documented(assay: Assay, tmp_path: Path) -> None:
    path = tmp_path / "selection.csv"
    assert assay("select", "pks", hand_made.write_raw_page(tmp_path / "page.csv"), "-o", path).code == 0
    assert path.read_text().splitlines()[0] in (DOCS / "selection-format.md").read_text()


def campaign_examples() -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", (DOCS / "campaign-file.md").read_text(), re.DOTALL)


def test_the_example_campaigns_are_valid() -> None:
    whole, chosen, ranks, workloads = campaign_examples()
    campaign = load_campaign(whole, "example.yaml")
    assert [w.name for w in campaign.workloads] == ["hotspot", "training"]
    assert set(re.findall(r"^ *-? *(\w+):", whole, re.MULTILINE)) >= set(Campaign.model_fields)
    head = whole[: whole.index("analysis:")]
    fixed = next(line for line in whole.splitlines(keepends=True) if line.startswith("detailed:"))
    assert load_campaign(whole.replace(fixed, chosen), "example.yaml").detailed.unseen_percent == 1
    above = head[: head.index("workloads:")]
    assert [w.ranks for w in load_campaign(above + ranks, "example.yaml").workloads] == ["each"]
    training = load_campaign(above + workloads, "example.yaml").workloads
    assert [w.kineto for w in training] == ["trace.json"]


def fields(model: Any, prefix: str = "") -> Iterator[str]:
    """Every key of a campaign file that holds a value, as the document writes them."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        inner = field.annotation
        items = getattr(inner, "__args__", ())
        # How a method is written is told by the example.
        if name != "methods" and items and hasattr(items[0], "model_fields"):
            optional = type(None) in items
            yield from fields(items[0], f"{key}." if optional else f"{key}[].")
        elif hasattr(inner, "model_fields"):
            yield from fields(inner, f"{key}.")
        else:
            yield key


def test_every_field_of_a_campaign_is_documented() -> None:
    names = documented((DOCS / "campaign-file.md").read_text())
    found = [re.sub(r"^workloads.*condition\.", "...condition.", key) for key in fields(Campaign)]
    # The requirements of a workload are told as those of a campaign, which they replace.
    found = [re.sub(r"^(workloads\[\]\.requires)\..*", r"\1", key) for key in found]
    assert len(found) >= 13
    assert set(found) <= names


@pytest.mark.parametrize("method", ["pks", "random", "systematic"])
def test_the_methods_of_the_documents_exist(method: str) -> None:
    assert method in samplers()


def test_every_key_of_what_compares_and_classifies_is_documented(assay: Assay, tmp_path: Path) -> None:
    text = selection_and_evaluation()
    window = hand_made.write_raw_page(tmp_path / "window.csv", 40)
    light = hand_made.write_kineto(tmp_path / "light.json", 60)
    path = tmp_path / "selection.json"
    assert assay("select", "stratified", light, "-p", "repetitions=3", "-o", path).code == 0
    assert undocumented(json.loads(path.read_text()), text) == set()
    slower = hand_made.write_kineto(tmp_path / "slower.json", 60, slower=2.0)
    relative = json.loads(assay("evaluate", path, light, slower, "--json").stdout)
    for part in (relative.pop("first"), relative.pop("second"), relative):
        assert undocumented(part, text) == set()
    compared = json.loads(assay("compare", window, "--json").stdout)
    for entry in compared.pop("methods"):
        assert undocumented({k: v for k, v in entry.items() if k != "parameters"}, text) == set()
    assert undocumented(compared, text) == set()
    found = json.loads(assay("classify", window, "--light", light, "-p", "model=sgd", "--json").stdout)
    two_level = found.pop("two_level")
    two_level.pop("models")
    assert undocumented(two_level, text) == set()
    assert undocumented({k: v for k, v in found.items() if k != "launches_by_origin"}, text) == set()
    iterated = json.loads(assay("select", "single_iteration", light, "--json").stdout)
    assert undocumented(iterated, text) == set()
    drawn = json.loads(
        assay("select", "pks", window, "-p", "launches_per_group=2", "-p", "seeds=2", "--json").stdout
    )
    assert undocumented(drawn, text) == set()
