"""The Helm chart, rendered by Helm's own library; and what its schema must say of our settings."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Protocol

import yaml

from assay_core.settings.declaration import DeclaredSetting, ProgramSettings

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "assay"
Document = dict[str, Any]
STAGES = sorted((CHART / "values").glob("*.yaml"))
# The chart sets these itself, from other values.
_OWN = {
    "assay-server": (
        "state",
        "listen",
        "join",
        "advertise_join",
        "database",
        "socket_group",
        "records",
        "records_endpoint",
        "records_credentials",
        "records_cache",
        "analysis",
    ),
    "assay-agent": ("state", "name", "agent_id", "server", "socket_owner", "policy", "virtual", "drain"),
}
_OWN_BEGINNINGS = ("records_cache", "metrics", "web", "database_", "analysis_c", "analysis_k")


class Render(Protocol):
    """Renders the chart with some values; returns what Kubernetes would be given."""

    def __call__(self, values: Document, name: str = "assay", namespace: str = "lab") -> list[Document]: ...


def is_the_charts(settings: type[ProgramSettings], key: str) -> bool:
    return key in _OWN[settings.program] or key.startswith(_OWN_BEGINNINGS)


def settings_schema(settings: type[ProgramSettings]) -> Document:
    """What values.schema.json must say of ``server.settings`` or ``agents.settings``."""
    free = [each for each in settings.declared() if not is_the_charts(settings, each.key)]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {each.key: _value_schema(each) for each in free},
    }


def _value_schema(setting: DeclaredSetting) -> Document:
    if setting.is_list:
        return {"type": "array", "items": {"type": "string"}}
    if setting.choices:
        return {"enum": list(setting.choices)}
    if setting.unit is None and setting.metavar == "NUMBER":
        return {"type": "number", "minimum": 0}
    return {"type": ["string", "boolean"]} if setting.metavar == "true|false" else {"type": "string"}


def stage_values(stage: Path) -> Document:
    found = yaml.safe_load(stage.read_text())
    assert isinstance(found, dict)
    return found


def documents(manifests: dict[str, str]) -> list[Document]:
    """What was rendered, without the notes."""
    texts = [text for path, text in sorted(manifests.items()) if not path.endswith("NOTES.txt")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


def file_of(found: list[Document], name: str) -> Document:
    """A settings file in the config maps, parsed."""
    [text] = [each["data"][name] for each in found if each["kind"] == "ConfigMap" and name in each["data"]]
    return tomllib.loads(text)


def of_kind(found: list[Document], kind: str) -> list[Document]:
    return [each for each in found if each["kind"] == kind]


def pods(found: list[Document]) -> list[Document]:
    return [each["spec"]["template"]["spec"] for each in found if "template" in each.get("spec", {})]


def containers(found: list[Document]) -> list[Document]:
    return [each for pod in pods(found) for each in [*pod["initContainers"], *pod["containers"]]]


def changed(path: str, value: object) -> Document:
    """Values with one key, named by its path."""
    result: Any = value
    for key in reversed(path.split(".")):
        result = {key: result}
    assert isinstance(result, dict)
    return result
