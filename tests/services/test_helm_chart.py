"""The Helm chart: linted, rendered and validated offline; what it says to our programs they understand."""

from __future__ import annotations

import importlib
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from assay_agent.config import AgentSettings
from assay_agent.policy.file import read_policy
from assay_core.settings.declaration import ProgramSettings
from assay_core.settings.settling import settle
from assay_server.config import ServerSettings
from tests.services.chart import (
    CHART,
    STAGES,
    Document,
    Render,
    changed,
    containers,
    file_of,
    of_kind,
    pods,
    settings_schema,
    stage_values,
)
from tests.support.command_lines import parse_command_line

VERSIONS = ("1.29", "1.37")
# Of the Prometheus operator; kubernetes-validate has no schemas of them.
FOREIGN = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}


@pytest.fixture(scope="module")
def stages(render: Render) -> dict[str, list[Document]]:
    return {stage.stem: render(stage_values(stage)) for stage in STAGES}


def test_there_are_three_stages() -> None:
    assert [stage.stem for stage in STAGES] == ["lab", "one-server", "site"]


@pytest.mark.parametrize("stage", [None, *STAGES], ids=lambda stage: stage.stem if stage else "defaults")
def test_helm_finds_nothing_to_mend(chart_packages: None, stage: Path | None) -> None:
    values = stage_values(stage) if stage else {}
    report = importlib.import_module("helm_python.chart").lint(str(CHART), values, strict=True)
    assert report["errors"] == []
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_what_is_rendered(stages: dict[str, list[Document]], version: str) -> None:
    validate = importlib.import_module("kubernetes_validate").validate
    for found in stages.values():
        checked = [each for each in found if each["kind"] not in FOREIGN]
        for document in checked:
            validate(document, version, strict=True)
        assert {"StatefulSet", "DaemonSet", "Service", "NetworkPolicy"} <= {each["kind"] for each in checked}
        assert len({(each["kind"], each["metadata"]["name"]) for each in found}) == len(found)


def test_a_program_that_dies_or_does_not_answer_is_started_again(stages: dict[str, list[Document]]) -> None:
    for found in stages.values():
        assert {pod["restartPolicy"] for pod in pods(found)} == {"Always"}
        servers = [each for each in containers(found) if each["name"] == "server"]
        assert servers
        assert all("livenessProbe" in each for each in servers)


def test_a_field_that_kubernetes_does_not_know_would_be_noticed(render: Render) -> None:
    validate = importlib.import_module("kubernetes_validate").validate
    [deployment] = of_kind(render({}), "StatefulSet")
    deployment["spec"]["template"]["spec"]["fsGroupPolicy"] = "Always"
    with pytest.raises(Exception, match="fsGroupPolicy"):
        validate(deployment, VERSIONS[0], strict=True)


BROKEN = {
    "server.replica": 2, "servers": {}, "server.replicas": 0, "server.settings.leese": "1m",
    "server.settings.lease": 60, "server.settings.listen": ["0.0.0.0:1"], "server.volume.size": "lots",
    "image.tag": 1, "authority.name": "", "authority.secretName": "Not A Name", "database.kind": "mysql",
    "database.url": "postgresql://assay@db/assay", "agents.counters": "root", "agents.gpus.access": "all",
    "agents.gpus.resourceName": "nvidia.com/mig-1g.10gb", "agents.virtual": "V100",
    "agents.policy": "allow_root = true", "records.kind": "s3",
    "analysis.scheduler": "dask.lab:8786", "agents.statePath": "state",
    "agents.settings.metrics": "0.0.0.0:1",
    "networkPolicy.enabled": "no", "metrics.monitor.enable": True,
}  # fmt: skip


@pytest.mark.parametrize("path", BROKEN)
def test_a_broken_value_is_refused_by_the_schema(render: Render, path: str) -> None:
    with pytest.raises(Exception, match="don't meet the specifications of the schema"):
        render(changed(path, BROKEN[path]))


@pytest.mark.parametrize(
    "database",
    [
        {"kind": "postgresql"},
        {"kind": "postgresql", "url": "postgresql://assay:secret@db/assay"},
        {"kind": "sqlite", "passwordSecret": "database"},
        {"kind": "postgresql", "url": "mysql://assay@db/assay"},
    ],
)
def test_a_database_that_cannot_be_is_refused(render: Render, database: Document) -> None:
    with pytest.raises(Exception, match="don't meet the specifications of the schema"):
        render({"database": database})


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"server": {"replicas": 2}}, "a standby needs database.kind postgresql"),
        (
            {
                "server": {"replicas": 2},
                "database": {"kind": "postgresql", "url": "postgresql://assay@db/assay"},
            },
            "a standby needs records in a volume that both servers reach, or in a bucket",
        ),
        (
            {
                "server": {"replicas": 2},
                "records": {"kind": "volume"},
                "database": {"kind": "postgresql", "url": "postgresql://assay@db/assay"},
            },
            "a standby needs the same authority",
        ),
        ({"records": {"kind": "volume"}}, "needs database.kind postgresql"),
        ({"metrics": {"monitor": {"enabled": True}}}, "only over mutual TLS"),
    ],
)
def test_values_that_contradict_each_other_are_refused_with_the_reason(
    render: Render, values: Document, why: str
) -> None:
    with pytest.raises(Exception, match=why):
        render(values)


def test_the_schema_knows_the_settings_of_our_programs_and_no_others() -> None:
    kept = json.loads((CHART / "values.schema.json").read_text())["properties"]
    models: dict[str, type[ProgramSettings]] = {"server": ServerSettings, "agents": AgentSettings}
    for part, model in models.items():
        assert kept[part]["properties"]["settings"] == settings_schema(model), part


def test_the_programs_take_the_rendered_settings(stages: dict[str, list[Document]], tmp_path: Path) -> None:
    models: dict[str, type[ProgramSettings]] = {"server.toml": ServerSettings, "agent.toml": AgentSettings}
    for found in stages.values():
        for name, model in models.items():
            path = tmp_path / name
            file_of(found, name)
            path.write_text(text_of(found, name))
            flags = dict.fromkeys(setting.field for setting in model.declared())
            assert settle(model, flags, file=path, environment={})
        policy = tmp_path / "policy.toml"
        policy.write_text(text_of(found, "policy.toml"))
        policy.chmod(0o644)
        assert read_policy(policy)


def text_of(found: list[Document], name: str) -> str:
    [text] = [each["data"][name] for each in of_kind(found, "ConfigMap") if name in each["data"]]
    return str(text)


def test_the_programs_take_every_rendered_command_line(
    stages: dict[str, list[Document]], render: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for found in [*stages.values(), render({"agents": {"enabled": True}})]:
        for container in containers(found):
            program = container["image"].rpartition("/")[2].partition(":")[0]
            lines = [[program, *container.get("args", [])]] if "command" not in container else []
            lines += commands(container)
            for variable in container.get("env", []):
                if variable["name"].startswith("ASSAY_"):
                    monkeypatch.setenv(variable["name"], "given")
            for words in lines:
                seen.append(parse_command_line(words))
    assert {"assay-server", "assay-server health", "assay-server init", "assay-agent join"} <= set(seen)
    assert "assay-agent run" in seen


def commands(container: Document) -> Iterator[list[str]]:
    """The command lines of our programs in a container's commands and probes, also within scripts."""
    given = [container.get("command", [])]
    given += [
        probe["exec"]["command"]
        for key, probe in container.items()
        if key.endswith("Probe") and "exec" in probe
    ]
    for command in given:
        lines = [command]
        if command[:1] == ["/bin/sh"]:
            lines = [shlex.split(line) for line in command[-1].replace(";", "\n").splitlines()]
        for line in lines:
            words = line[1:] if line[:1] == ["exec"] else line
            if words and words[0].startswith("/opt/assay/bin/assay"):
                yield [words[0].removeprefix("/opt/assay/bin/"), *words[1:]]


def test_no_container_has_more_rights_than_it_needs(
    stages: dict[str, list[Document]], render: Render
) -> None:
    for found in stages.values():
        for pod in pods(found):
            assert pod["automountServiceAccountToken"] is False
            for container in [*pod["initContainers"], *pod["containers"]]:
                rights = container["securityContext"]
                assert rights["capabilities"]["drop"] == ["ALL"] and rights["readOnlyRootFilesystem"] is True
                assert rights["allowPrivilegeEscalation"] is False
                is_root = rights.get("runAsUser", pod["securityContext"].get("runAsUser")) == 0
                # The agent's folder on the node is root's until one step has given it away.
                assert is_root == (container["name"] == "prepare" and container["image"].count("assay-agent"))
    agents = {"enabled": True, "counters": "capability", "policy": "version = 1\nallow_root = true"}
    [pod] = [each for each in pods(render({"agents": agents})) if "hostPID" in each]
    rights = pod["containers"][0]["securityContext"]
    assert rights["capabilities"]["add"] == ["SYS_ADMIN"] and rights["runAsUser"] == 0
    assert "allowPrivilegeEscalation" not in rights  # Kubernetes refuses false beside this capability


def test_a_restart_does_not_open_the_authoritys_key_to_the_group(stages: dict[str, list[Document]]) -> None:
    for found in stages.values():
        [server] = [each for each in pods(found) if each["containers"][0]["name"] == "server"]
        assert server["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"


def test_agents_stay_away_from_shared_and_partitioned_gpus(render: Render) -> None:
    gpus = {"access": "resource", "resourceName": "nvidia.com/gpu", "count": 4}
    [pod] = [each for each in pods(render({"agents": {"enabled": True, "gpus": gpus}})) if "hostPID" in each]
    [term] = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"] == [
        {"key": "nvidia.com/gpu.sharing-strategy", "operator": "NotIn", "values": ["time-slicing", "mps"]},
        {"key": "nvidia.com/gpu.slices.gi", "operator": "DoesNotExist"},
    ]
    container = pod["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}
    assert "NVIDIA_VISIBLE_DEVICES" not in {each["name"] for each in container["env"]}
    [pod] = [each for each in pods(render({"agents": {"enabled": True}})) if "hostPID" in each]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} in pod["containers"][0]["env"]
    [pod] = [
        each
        for each in pods(render({"agents": {"enabled": True, "virtual": ["V100:2"]}}))
        if "hostPID" in each
    ]
    assert "runtimeClassName" not in pod and "affinity" not in pod
    assert not any(each["name"].startswith("NVIDIA") for each in pod["containers"][0]["env"])


def test_the_pod_outlives_the_agents_drain(render: Render) -> None:
    found = render({"agents": {"enabled": True, "drainSeconds": 1200}})
    [pod] = [each for each in pods(found) if "hostPID" in each]
    assert (file_of(found, "agent.toml")["drain"], pod["terminationGracePeriodSeconds"]) == ("1200s", 1260)


def test_what_is_named_is_there(stages: dict[str, list[Document]]) -> None:
    for found in stages.values():
        for workload in [*of_kind(found, "StatefulSet"), *of_kind(found, "DaemonSet")]:
            pod, labels = (
                workload["spec"]["template"]["spec"],
                workload["spec"]["template"]["metadata"]["labels"],
            )
            assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
            volumes = {each["name"] for each in pod["volumes"]}
            volumes |= {each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", [])}
            mounted = {
                mount["name"]
                for container in [*pod["initContainers"], *pod["containers"]]
                for mount in container["volumeMounts"]
            }
            assert mounted == volumes
            for volume in pod["volumes"]:
                if "configMap" in volume:
                    named = volume["configMap"]["name"]
                    assert named in {each["metadata"]["name"] for each in of_kind(found, "ConfigMap")}
        [service] = of_kind(found, "Service")
        [server] = [each for each in pods(found) if each["containers"][0]["name"] == "server"]
        ports = {each["name"] for each in server["containers"][0]["ports"]}
        assert {each["targetPort"] for each in service["spec"]["ports"]} == ports


def test_the_rules_for_the_operator_are_those_of_prometheus(stages: dict[str, list[Document]]) -> None:
    [rules] = of_kind(stages["lab"], "PrometheusRule")
    assert rules["spec"] == yaml.safe_load((CHART.parents[1] / "prometheus" / "rules.yml").read_text())
