"""A standby that takes over has the bundles, quotas and logins of the live page of the server before it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx
import numpy
import pyarrow
import pytest

from assay_server.web.routes.context import COOKIE
from tests.services.needed import needs_standby
from tests.services.standby_lab import StandbyLab, standby_lab
from tests.support.agent.bubblewrap import BUBBLEWRAP, bubblewrap_here
from tests.support.integration.harness import wait_until
from tests.support.integration.made_workload import one_kernel

pytestmark = [
    needs_standby,
    pytest.mark.xdist_group("standby"),
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
# Two bundles that cannot be compressed go beyond it together, and neither does by itself.
MOST_BYTES, FILLER_BYTES = 50_000, 30_000


def folder_to_send(root: Path, name: str) -> Path:
    """A campaign file beside its bundle, whose bytes nobody else has; returns the file."""
    files = root / name / "files"
    files.mkdir(parents=True)
    (files / "sent.toml").write_text(WORKLOAD)
    (files / "filler").write_bytes(os.urandom(FILLER_BYTES if name != "small" else 10))
    (root / name / "sent.yaml").write_text(CAMPAIGN)
    return root / name / "sent.yaml"


def start_agent(two: StandbyLab, policy: Path) -> None:
    """An agent that runs what was sent."""
    two.people.start_agent("agent", "--recorded-slots=0", "--virtual=V100", "--policy", str(policy))


def require_done(two: StandbyLab, campaign_id: str) -> str:
    """Wait for the campaign; the hash of the bundle that was measured."""
    people = two.people
    assert people.wait_for(campaign_id) == "done", people.logs()
    [entry] = people.report(campaign_id)["provenance"]
    [sha256] = entry["bundles"]
    return str(sha256)


def test_a_bundle_sent_to_a_server_that_dies_is_given_out_by_the_next_and_counts_there(
    fresh_database: str,
) -> None:
    bubblewrap_here()
    limit = f"bundle_identity_bytes={MOST_BYTES}"
    with standby_lab(fresh_database, "--limit", limit) as two:
        people, root = two.people, two.root
        policy = root / "guests.toml"
        packages = sorted({str(Path(p).resolve().parent) for p in (*numpy.__path__, *pyarrow.__path__)})
        readable = f"readable = {json.dumps(packages)}\n"
        bubblewrap = f'bubblewrap = "{BUBBLEWRAP}"\n'
        policy.write_text(f"version = 1\nallow_root = true\n[bundles]\n{bubblewrap}{readable}")
        policy.chmod(0o600)
        sent = people.submit(folder_to_send(root, "large"))
        two.kill_active("a")  # nobody has fetched the bundle yet
        wait_until(lambda: people.state(sent) != "unreachable", "an answer of the other server")
        refused = people.assay("lab", "submit", str(folder_to_send(root, "further")), check=False)
        assert refused.returncode != 0
        assert "there is no room for it" in refused.stderr and f"{MOST_BYTES:,}" in refused.stderr
        start_agent(two, policy)
        assert require_done(two, sent)


def page_of(two: StandbyLab, cookie: str) -> httpx.Response:
    """The list of GPUs behind the balancer, as a browser with this cookie gets it."""
    return httpx.get(f"{two.pages['balancer']}/gpus", cookies={COOKIE: cookie}, timeout=60, trust_env=False)


def log_in(two: StandbyLab, link: str) -> httpx.Response:
    """Open a link's session."""
    secret = link.partition("link=")[2]
    page = f"{two.pages['balancer']}/login"
    return httpx.post(page, data={"link": secret}, timeout=60, trust_env=False)


def log_out(two: StandbyLab, cookie: str) -> httpx.Response:
    """End a session."""
    token = page_of(two, cookie).text.partition('name="csrf" value="')[2].partition('"')[0]
    return httpx.post(
        f"{two.pages['balancer']}/logout",
        data={"csrf": token},
        cookies={COOKIE: cookie},
        timeout=60,
        trust_env=False,
    )


def test_a_login_of_the_live_page_outlives_its_server_and_so_does_its_logout(fresh_database: str) -> None:
    with standby_lab(fresh_database, web=True) as two:
        links = [
            json.loads(two.people.assay("lab", "login", "--web", "--json").stdout)["url"] for _ in range(2)
        ]
        assert links[0].startswith(f"{two.pages['balancer']}/login?link=")
        cookies = [log_in(two, link).cookies[COOKIE] for link in links]
        left = log_out(two, cookies[1])
        assert (left.status_code, left.headers["location"]) == (303, "/login")
        two.kill_active("a")
        wait_until(lambda: answers(two), "the page of the other server")
        assert [page_of(two, each).status_code for each in (*cookies, "x" * 43)] == [200, 401, 401]
        assert log_in(two, links[0]).status_code == 401, "a link opens one session"


def answers(two: StandbyLab) -> bool:
    """Whether a page is behind the balancer."""
    try:
        return page_of(two, "").status_code < 500
    except httpx.TransportError:
        return False
