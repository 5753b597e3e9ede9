"""The Helm chart with odd but honest values: names, two releases in a namespace, registries, networks."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.services.chart import CHART, Document, Render, changed, file_of, of_kind, pods

LONG = "a-very-long-release-name-that-goes-on-and-on-for-{}"
# A Service's name (RFC 1035); all that we make is such a name, with one more word at most.
SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
AGENTS: Document = {"agents": {"enabled": True}}
POSTGRESQL = "postgresql://assay@{}/assay"


def names(found: list[Document]) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in found}


def agent_pod(found: list[Document]) -> Document:
    [daemons] = of_kind(found, "DaemonSet")
    pod: Document = daemons["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("release", ["assay", "lab", "3dlab", "3-assay", "gpu.lab", LONG.format("one")])
def test_all_that_a_release_makes_has_a_name_that_kubernetes_takes(render: Render, release: str) -> None:
    found = render(AGENTS, name=release)
    for kind, name in names(found):
        assert SERVICE_NAME.fullmatch(name) and len(name) <= 52, (kind, name)  # 63 less a revision's hash
    [service] = of_kind(found, "Service")
    [server] = of_kind(found, "StatefulSet")
    assert server["spec"]["serviceName"] == service["metadata"]["name"]


def test_two_releases_share_no_name_and_no_folder(render: Render) -> None:
    for first, second in (("assay", "assay-two"), (LONG.format("one"), LONG.format("two"))):
        one, other = render(AGENTS, name=first), render(AGENTS, name=second)
        assert not names(one) & names(other)
        assert own_things(one).isdisjoint(own_things(other))
    assert (
        own_things(render(AGENTS, namespace="lab"))["statePath"]
        != (own_things(render(AGENTS, namespace="other"))["statePath"])
    )


class OwnThings(dict[str, str]):
    """What a release must not share with another one."""

    def isdisjoint(self, other: OwnThings) -> bool:
        return self.keys() == other.keys() and not set(self.values()) & set(other.values())


def own_things(found: list[Document]) -> OwnThings:
    pod = agent_pod(found)
    [join] = [each for each in pod["initContainers"] if each["name"] == "join"]
    [token] = [
        each["valueFrom"]["secretKeyRef"] for each in join["env"] if each["name"] == "ASSAY_JOIN_TOKEN"
    ]
    [state] = [each["hostPath"] for each in pod["volumes"] if each["name"] == "state"]
    return OwnThings(joinSecret=token["name"], statePath=state["path"], server=join["args"][1])


def test_agents_that_take_all_gpus_of_a_node_never_share_it(render: Render) -> None:
    affinity = agent_pod(render(AGENTS))["affinity"]
    [term] = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname" and term["namespaceSelector"] == {}
    [daemons] = of_kind(render(AGENTS, name="other"), "DaemonSet")
    labels = daemons["spec"]["template"]["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()

    resource = agent_pod(render(changed("agents", {"enabled": True, "gpus": {"access": "resource"}})))
    assert "podAntiAffinity" not in resource["affinity"]
    assert "affinity" not in agent_pod(render(changed("agents", {"enabled": True, "virtual": ["V100"]})))


@pytest.mark.parametrize(
    "registry", ["registry.example:5000/assay", "registry.example:5000", "localhost", "[fd00::1]:5000/a/b_c"]
)
def test_an_image_comes_from_the_registry_that_was_named(render: Render, registry: str) -> None:
    [server] = of_kind(render({"image": {"registry": registry, "tag": "1.2-rc.1"}}), "StatefulSet")
    [container] = server["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"{registry}/assay-server:1.2-rc.1"


BROKEN = {
    "image.registry": [
        "registry.example/assay/",
        "https://registry.example",
        "registry.example/Assay",
        "a b",
    ],
    "image.tag": ["a b", "sha256:0123", ":1.0", "x" * 129],
    "agents.policy": ["version = 2", "version = 10", "versions = 1"],
    "agents.joinAddress": ["lab.example", "lab.example:99999"],
    "server.service.advertiseJoin": ["lab.example:70000"],
}


@pytest.mark.parametrize(
    ("path", "value"), [(path, each) for path, found in BROKEN.items() for each in found]
)
def test_a_value_that_no_pod_could_start_with_is_refused(render: Render, path: str, value: str) -> None:
    with pytest.raises(Exception, match=f"at '/{path.replace('.', '/')}': .*does not match|maxLength"):
        render(changed(path, value))


@pytest.mark.parametrize(
    "policy", ["version=1", "# ours\nversion = 1  # of the file", 'users = ["a"]\nversion = 1']
)
def test_a_policy_may_be_written_as_toml_may(render: Render, policy: str) -> None:
    found = render(changed("agents", {"enabled": True, "policy": policy}))
    assert file_of(found, "policy.toml")["version"] == 1


def defaults(values: Document, path: str = "") -> list[str]:
    """The path of every key of values.yaml that has keys itself; limits of memory may be taken away so."""
    inner = [(f"{path}.{key}" if path else key, value) for key, value in values.items()]
    inner = [(key, value) for key, value in inner if not key.endswith((".limits", ".requests"))]
    return [
        each
        for key, value in inner
        if isinstance(value, dict) and value
        for each in [key, *defaults(value, key)]
    ]


@pytest.mark.parametrize("path", defaults(yaml.safe_load((CHART / "values.yaml").read_text())))
def test_a_key_with_nothing_under_it_is_named(render: Render, path: str) -> None:
    """A key whose lines were commented out is null, which takes Helm's defaults away."""
    parent, _, key = path.rpartition(".")
    with pytest.raises(Exception, match=f"at '/?{parent.replace('.', '/')}': missing propert.*'{key}'"):
        render(changed(path, None))


def test_limits_can_be_taken_away(render: Render) -> None:
    gpus = {"access": "resource", "count": 2}
    unlimited: dict[str, Any] = {"resources": {"limits": None}}
    found = render({"server": unlimited, "agents": {"enabled": True, "gpus": gpus, **unlimited}})
    [[server], [agent]] = [pod["containers"] for pod in sorted(pods(found), key=lambda pod: "hostPID" in pod)]
    assert (server["resources"]["limits"], agent["resources"]["limits"]) == ({}, {"nvidia.com/gpu": 2})


def test_a_root_agent_needs_a_policy_that_allows_root(render: Render) -> None:
    agents: dict[str, Any] = {"enabled": True, "counters": "capability"}
    with pytest.raises(Exception, match=r"agents\.policy: .* allow_root = true"):
        render({"agents": agents})
    assert render({"agents": {**agents, "policy": "version = 1\nallow_root = true"}})


def server_egress(found: list[Document]) -> list[Document]:
    [policy] = [
        each for each in of_kind(found, "NetworkPolicy") if each["metadata"]["name"] == "assay-server"
    ]
    rules: list[Document] = policy["spec"]["egress"]
    return rules


def open_ports(found: list[Document]) -> set[int]:
    """The TCP ports that the server may reach anywhere."""
    rules = [rule for rule in server_egress(found) if "to" not in rule]
    return {port["port"] for rule in rules for port in rule["ports"] if port["protocol"] == "TCP"}


@pytest.mark.parametrize(
    ("hosts", "ports"),
    [("db", {5432}), ("db:6432", {6432}), ("one:5433,two:5434", {5433, 5434}), ("[fd00::1]:5433", {5433})],
)
def test_the_server_may_reach_its_database_where_its_url_says(
    render: Render, hosts: str, ports: set[int]
) -> None:
    found = render({"database": {"kind": "postgresql", "url": POSTGRESQL.format(hosts)}})
    assert open_ports(found) == {53} | ports


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [("", 443), ("https://s3.example", 443), ("http://objects", 80), ("http://objects:8333/", 8333)],
)
def test_the_server_may_reach_its_bucket_unless_other_rules_are_given(
    render: Render, endpoint: str, port: int
) -> None:
    records = {"kind": "s3", "s3": {"url": "s3://bucket", "endpoint": endpoint, "credentialsSecret": "keys"}}
    assert open_ports(render({"records": records})) == {53, port}
    narrow = [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]
    found = render({"records": records, "networkPolicy": {"serverEgress": narrow}})
    assert open_ports(found) == {53} and narrow[0] in server_egress(found)


def test_a_server_with_its_nodes_identity_may_ask_for_it(render: Render) -> None:
    identity = {
        "to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}],
        "ports": [{"protocol": "TCP", "port": 80}],
    }
    records: dict[str, Any] = {"kind": "s3", "s3": {"url": "s3://bucket"}}
    assert identity in server_egress(render({"records": records}))
    records["s3"]["credentialsSecret"] = "keys"
    assert identity not in server_egress(render({"records": records}))


def test_the_server_may_reach_dasks_scheduler(render: Render) -> None:
    assert open_ports(render({"analysis": {"scheduler": "dask+tls://dask.site:8786"}})) == {53, 8786}
