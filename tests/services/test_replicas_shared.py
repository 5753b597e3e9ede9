"""Two real servers behind HAProxy have one another's bundles, quotas and logins of the live page."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy
import pyarrow
import pytest

from assay_server.access.directory import REFRESH_SECONDS
from assay_server.web.routes.context import COOKIE
from tests.services.needed import needs_replicas
from tests.services.replica_lab import ReplicaLab, replica_lab
from tests.support.agent.bubblewrap import BUBBLEWRAP, bubblewrap_here
from tests.support.integration.harness import ASK_SECONDS, wait_until
from tests.support.integration.made_workload import one_kernel

pytestmark = [
    needs_replicas,
    pytest.mark.xdist_group("replicas"),
    pytest.mark.timeout(600),
]

WORKLOAD = one_kernel("sent", launches=30)
CAMPAIGN = """\
campaign: sent
synthetic: true
gpus: [V100]
detailed: {first: 10, sets: features}
workloads: [{name: sent, bundle: files, command: [sent.toml]}]
analysis: {methods: [{random: {launches: 1}}]}
"""
# Two bundles that cannot be compressed go beyond it together, and neither does alone.
MOST_BYTES, FILLER_BYTES = 50_000, 30_000


def folder_to_send(root: Path, name: str) -> Path:
    """A campaign file beside its bundle, whose bytes nobody else has; returns the file."""
    files = root / name / "files"
    files.mkdir(parents=True)
    (files / "sent.toml").write_text(WORKLOAD)
    (files / "filler").write_bytes(os.urandom(FILLER_BYTES if name != "small" else 10))
    (root / name / "sent.yaml").write_text(CAMPAIGN)
    return root / name / "sent.yaml"


@contextmanager
def at(replicas: ReplicaLab, name: str) -> Iterator[None]:
    """People and new agents are connected to this server, past the balancer."""
    people = replicas.people
    people.address, before = replicas.addresses[name], people.address
    try:
        yield
    finally:
        people.address = before


def sent(replicas: ReplicaLab, name: str, campaign: Path) -> str:
    """Submit through a server; the campaign."""
    with at(replicas, name):
        return replicas.people.submit(campaign)


def start_agent(replicas: ReplicaLab, policy: Path) -> None:
    """An agent that knows the second server only, and runs what was sent."""
    with at(replicas, "b"):
        options = ("--recorded-slots=0", "--virtual=V100", "--policy", str(policy))
        replicas.people.start_agent("agent", *options)


def require_done(replicas: ReplicaLab, campaign_id: str) -> str:
    """Wait for the campaign at the second server; the hash of the bundle that was measured."""
    with at(replicas, "b"):
        people = replicas.people
        assert people.wait_for(campaign_id) == "done", people.logs()
        [entry] = people.report(campaign_id)["provenance"]
        [sha256] = entry["bundles"]
        return str(sha256)


def test_a_bundle_sent_through_one_server_is_given_out_by_the_other_and_counts_for_it(
    fresh_database: str,
) -> None:
    bubblewrap_here()
    limit = f"bundle_identity_bytes={MOST_BYTES}"
    with replica_lab(fresh_database, "--limit", limit) as replicas:
        people, root = replicas.people, replicas.root
        policy = root / "guests.toml"
        packages = sorted({str(Path(p).resolve().parent) for p in (*numpy.__path__, *pyarrow.__path__)})
        readable = f"readable = {json.dumps(packages)}\n"
        bubblewrap = f'bubblewrap = "{BUBBLEWRAP}"\n'
        policy.write_text(f"version = 1\nallow_root = true\n[bundles]\n{bubblewrap}{readable}")
        policy.chmod(0o600)
        first = sent(replicas, "a", folder_to_send(root, "small"))
        start_agent(replicas, policy)
        one = require_done(replicas, first)
        assert people.stop("agent") == 0, people.logs()
        second = sent(replicas, "a", folder_to_send(root, "large"))
        with at(replicas, "b"):
            refused = people.assay("submit", str(folder_to_send(root, "further")), check=False)
        assert refused.returncode != 0
        assert "there is no room for it" in refused.stderr and f"{MOST_BYTES:,}" in refused.stderr
        people.kill("a")  # nobody has fetched the second bundle yet
        start_agent(replicas, policy)
        assert require_done(replicas, second) != one


def page_of(replicas: ReplicaLab, name: str, cookie: str) -> httpx.Response:
    """The list of campaigns at a server or behind the balancer, as a browser with this cookie gets it."""
    return httpx.get(f"{replicas.pages[name]}/gpus", cookies={COOKIE: cookie}, timeout=60, trust_env=False)


def log_in(replicas: ReplicaLab, name: str, link: str) -> httpx.Response:
    """Open a link's session at a server."""
    secret = link.partition("link=")[2]
    return httpx.post(f"{replicas.pages[name]}/login", data={"link": secret}, timeout=60, trust_env=False)


def test_a_login_of_the_live_page_holds_at_both_servers_and_so_does_its_logout(fresh_database: str) -> None:
    with replica_lab(fresh_database, web=True) as replicas:
        with at(replicas, "a"):
            link = json.loads(replicas.people.assay("login", "--web", "--json").stdout)["url"]
        assert link.startswith(f"{replicas.pages['balancer']}/login?link=")
        opened = log_in(replicas, "b", link)
        assert (opened.status_code, opened.headers["location"]) == (303, "/")
        cookie = opened.cookies[COOKIE]
        assert log_in(replicas, "a", link).status_code == 401, "a link opens one session"
        # The balancer asks the servers in turn.
        for name in ("a", "b", *["balancer"] * 4):
            assert page_of(replicas, name, cookie).status_code == 200, name
        assert page_of(replicas, "a", "x" * 43).status_code == 401
        token = page_of(replicas, "b", cookie).text.partition('name="csrf" value="')[2].partition('"')[0]
        left = httpx.post(
            f"{replicas.pages['b']}/logout",
            data={"csrf": token},
            cookies={COOKIE: cookie},
            timeout=60,
            trust_env=False,
        )
        assert (left.status_code, left.headers["location"]) == (303, "/login")
        assert page_of(replicas, "b", cookie).status_code == 401
        what = f"the end of the session at the other server, which looks every {REFRESH_SECONDS:g} s"
        wait_until(
            lambda: page_of(replicas, "a", cookie).status_code == 401,
            what,
            2 * REFRESH_SECONDS,
            pause_seconds=ASK_SECONDS,
        )
