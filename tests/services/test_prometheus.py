"""A real Prometheus scrapes server and agent; promtool accepts the rules, and sees each alert fire."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay_agent.metrics.agent_metrics import AgentMetrics
from assay_agent.spool.spool import Spool
from assay_agent.uplink.session import Session
from assay_core.identity.certificates import certificate_pem
from assay_core.identity.keys import key_pem, new_key
from assay_server.metrics.server_metrics import QueueCollector, ServerMetrics
from tests.services.unpack import why_not
from tests.support.identity.authorities import DAY, made_authority, made_credentials, now
from tests.support.integration.harness import Lab, lab, wait_until

DEPLOYED = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
RULES = yaml.safe_load((DEPLOYED / "rules.yml").read_text())["groups"][0]["rules"]
UNIT_TESTS = Path(__file__).parent / "rules_test.yml"


@pytest.fixture(scope="module")
def programs() -> Path:
    given = os.environ.get("ASSAY_SERVICES")
    if not given:
        pytest.skip("'make test-services' runs it")
    if reason := why_not(Path(given)):
        pytest.skip(f"no Prometheus: {reason}")
    return Path(given) / "bin"


def promtool(programs: Path, *arguments: str | Path) -> str:
    ended = subprocess.run(
        [programs / "promtool", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_promtool_accepts_rules_and_configuration(programs: Path) -> None:
    said = promtool(programs, "check", "rules", DEPLOYED / "rules.yml")
    assert f"SUCCESS: {len(RULES)} rules found" in said
    promtool(programs, "check", "config", "--syntax-only", DEPLOYED / "prometheus.yml")


def test_each_alert_fires_on_what_it_is_for_and_not_before(programs: Path) -> None:
    promtool(programs, "test", "rules", UNIT_TESTS)


def test_each_alert_has_a_test_that_sees_it_fire() -> None:
    groups = yaml.safe_load(UNIT_TESTS.read_text())["tests"]
    fired = {case["alertname"] for group in groups for case in group["alert_rule_test"] if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in RULES}


def test_rules_name_only_metrics_that_the_daemons_have(tmp_path: Path) -> None:
    agent, server = AgentMetrics(tmp_path), ServerMetrics(tmp_path)
    spool = Spool(tmp_path / "spool")
    agent.watch(spool, Session(), [], [])
    spool.close()
    server.tell_certificates(tmp_path, lambda: None)
    families = [*agent.registry.collect(), *server.registry.collect()]
    families += QueueCollector.describe(object())  # type: ignore[arg-type]
    known = {
        name + ending
        for family in families
        for name in (family.name,)
        for ending in {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(
            family.type, ("",)
        )
    }
    used = {name for rule in RULES for name in re.findall(r"\bassay_\w+", rule["expr"])}
    assert len(used) > 15
    assert used <= known


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Prometheus:
    """A Prometheus that was started, and its HTTP interface."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, **query: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def values(self, query: str, label: str) -> dict[str, float]:
        try:
            found = self.get("query", query=query)["result"]
        except OSError:  # it has not started yet
            return {}
        return {one["metric"].get(label, ""): float(one["value"][1]) for one in found}


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, Path]:
    """Files of an endpoint and of its reader, from one authority."""
    authority, key = made_authority(), new_key()
    reader = made_credentials(authority)
    files = {
        "certificate": certificate_pem(authority.issue_for_server(key.public_key(), DAY, now())),
        "key": key_pem(key),
        "authority": certificate_pem(authority.certificate),
        "reader": reader.certificate,
        "reader-key": reader.key_pem,
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return {name: tmp_path / name for name in files}


@pytest.fixture
def lab_with_metrics(tls: dict[str, Path]) -> Iterator[tuple[Lab, dict[str, str]]]:
    """A server with metrics in the clear on loopback, and an agent with metrics over TLS."""
    targets = {name: f"127.0.0.1:{free_port()}" for name in ("server", "agent")}
    with lab() as made:
        made.start_server("--metrics", targets["server"])
        made.start_agent(
            "agent", "--virtual", "V100", "--metrics", targets["agent"],
            "--metrics-certificate", str(tls["certificate"]), "--metrics-key", str(tls["key"]),
            "--metrics-readers", str(tls["authority"]),
        )  # fmt: skip
        yield made, targets


@pytest.fixture
def prometheus(
    programs: Path, tmp_path: Path, tls: dict[str, Path], lab_with_metrics: tuple[Lab, dict[str, str]]
) -> Iterator[Prometheus]:
    """Debian's Prometheus with our rules and our jobs."""
    _, targets = lab_with_metrics
    configuration = yaml.safe_load((DEPLOYED / "prometheus.yml").read_text())
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration["rule_files"] = [str(DEPLOYED / "rules.yml")]
    server, agent = configuration["scrape_configs"]
    server["static_configs"] = [{"targets": [targets["server"]]}]
    agent["static_configs"] = [{"targets": [targets["agent"]]}]
    agent["tls_config"] = {
        "ca_file": str(tls["authority"]), "cert_file": str(tls["reader"]),
        "key_file": str(tls["reader-key"]), "server_name": "assay-server",
    }  # fmt: skip
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    address = f"127.0.0.1:{free_port()}"
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [programs / "prometheus", f"--config.file={tmp_path / 'prometheus.yml'}",
             f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address={address}"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield Prometheus(address)
    finally:
        process.kill()
        process.wait()


@pytest.mark.processes
def test_a_real_prometheus_scrapes_both_daemons_and_evaluates_the_rules(
    prometheus: Prometheus, lab_with_metrics: tuple[Lab, dict[str, str]]
) -> None:
    made, _ = lab_with_metrics
    both = {"assay-server": 1.0, "assay-agent": 1.0}
    wait_until(lambda: prometheus.values("up", "job") == both, f"two targets that are up\n{made.logs()}")
    wait_until(
        lambda: prometheus.values("assay_server_agents", "state") == {"present": 1.0, "away": 0.0},
        "the server's word that the agent is there",
    )
    assert prometheus.values("assay_build_info", "program") == both
    wait_until(lambda: prometheus.values("assay_agent_connected", "job") == {"assay-agent": 1.0}, "it")
    known = {
        target["labels"]["job"]: target["health"] for target in prometheus.get("targets")["activeTargets"]
    }
    assert known == {"assay-server": "up", "assay-agent": "up"}

    def evaluated() -> bool:
        rules = prometheus.get("rules")["groups"][0]["rules"]
        return all(rule["health"] == "ok" for rule in rules)

    wait_until(evaluated, "an evaluation of every rule without an error")
    made.kill("agent")
    wait_until(lambda: prometheus.values("up", "job")["assay-agent"] == 0, "the agent's absence")
    wait_until(
        lambda: "AssayAgentGone" in prometheus.values('ALERTS{alertstate="pending"}', "alertname"),
        "an alert that begins to wait",
    )
