"""``assay-agent policy check``, and the policy of a running agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay_protos import agent_pb2
from tests.support.agent.agent_processes import agent_process, run_agent, write_recording
from tests.support.agent.fake_server import FakeServer, wait_for

pytestmark = pytest.mark.processes

RULES = """
version = 1
allow_root = true
directories = ["/tmp/**"]
environment = ["OMP_NUM_THREADS"]

[[allow]]
name = "shell scripts of ours"
program = "/bin/sh"
arguments = ["/opt/workloads/*.sh", "..."]
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(RULES)
    return path


def test_check_explains_which_rule_decides(policy: Path) -> None:
    allowed = run_agent(
        "policy", "check", "--policy", str(policy), "--env", "OMP_NUM_THREADS=4", "--directory", "/tmp/x",
        "--", "sh", "/opt/workloads/a.sh", "--size", "7",
    )  # fmt: skip
    assert allowed.returncode == 0, allowed.stderr
    assert allowed.stdout.startswith(
        f"allowed: rule 'shell scripts of ours' of {policy} allows it\nprogram  "
    )
    refused = run_agent("policy", "check", "--policy", str(policy), "--", "/bin/sh", "-c", "id")
    assert refused.returncode == 7
    assert "argument 1, '-c', is not '/opt/workloads/*.sh'" in refused.stdout
    assert refused.stderr.startswith("assay-agent: this command: rule 'shell scripts of ours'")
    assert f"have {policy} allow it, reload the agent" in refused.stderr


def test_check_takes_a_program_below_the_folder_as_a_campaign_does(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        f'version = 1\nallow_root = true\ndirectories = ["{tmp_path}"]\n'
        f'[[allow]]\nprogram = "{tmp_path}/run.sh"\n'
    )
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    done = run_agent(
        "policy", "check", "--policy", str(policy), "--directory", str(tmp_path), "--", "./run.sh"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"program  '{tmp_path}/run.sh'" in done.stdout


def test_check_answers_in_json(policy: Path) -> None:
    done = run_agent("policy", "check", "--json", "--policy", str(policy), "/bin/true")
    assert done.returncode == 7
    document = json.loads(done.stdout)
    assert document["allowed"] is False
    assert document["policy"] == str(policy)
    assert set(document) == {
        "allowed",
        "why",
        "remedy",
        "program",
        "resolved",
        "rule",
        "policy",
        "runs",
        "note",
    }


def test_check_knows_our_own_server_from_those_over_tcp(tmp_path: Path) -> None:
    for ours in (("--server", "unix:/tmp/s"), ()):
        assert run_agent("policy", "check", *ours, "/bin/true").returncode == 0
    for address in ("127.0.0.1:7170", "localhost:7170", "127.attacker.example:7170", "gpu.example:7170"):
        refused = run_agent("policy", "check", "--server", address, "/bin/true")
        assert refused.returncode == 7
        assert "over TCP other people and other machines ask for runs" in refused.stdout
    (tmp_path / "program").write_text("#!/bin/sh\n")
    (tmp_path / "program").chmod(0o777)
    rules = tmp_path / "policy.toml"
    rules.write_text(f'version = 1\nallow_root = true\n[[allow]]\nprogram = "{tmp_path}/*"\n')
    careless = run_agent("policy", "check", "--policy", str(rules), f"{tmp_path}/program")
    assert careless.stdout.endswith(
        "others decide what is there: other users may write into it (mode 0777)\n"
    )
    assert run_agent("policy", "check", "--env", "A", "/bin/true").returncode == 2
    assert run_agent("policy", "check", "--policy", str(tmp_path / "none"), "/bin/true").returncode == 3


def test_a_running_agent_refuses_before_it_starts_anything(
    server: FakeServer, tmp_path: Path, policy: Path
) -> None:
    victim = tmp_path / "victim"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {victim}\n")
    program.chmod(0o755)
    command = agent_pb2.CommandSource(argv=[str(program)], working_directory=str(tmp_path))
    server.add_run("c-1.0000", profiler="nsight_systems", synthetic=True, command=command)
    recording = write_recording(tmp_path / "r.parquet", 100, 1)
    server.add_run("c-1.0001", recorded={"path": str(recording)})
    with agent_process(server, tmp_path / "state", "--virtual", "V100", "--policy", str(policy)) as agent:
        wait_for(lambda: len(server.failures) == 2)
        agent.terminate()
        _, log = agent.communicate(timeout=90)
    failures = {request.key.run_id: request.failure for request in server.failures}
    for failure in failures.values():
        assert (failure.failure_class, failure.retryable) == ("refused_by_policy", False)
        assert str(policy) in failure.cause and str(policy) in failure.remedy
    assert f"'{program}'" in failures["c-1.0000"].cause
    assert "'recordings'" in failures["c-1.0001"].cause
    assert not victim.exists()
    assert f"the policy file {policy} is in force" in log


def test_what_the_policy_allows_is_measured(server: FakeServer, tmp_path: Path) -> None:
    recording = write_recording(tmp_path / "r.parquet", 100, 1)
    policy = tmp_path / "policy.toml"
    policy.write_text(f'version = 1\nallow_root = true\nrecordings = ["{tmp_path}/*.parquet"]\n')
    server.add_run("c-1.0001", recorded={"path": str(recording)})
    with agent_process(server, tmp_path / "state", "--policy", str(policy)):
        wait_for(lambda: server.published)
    assert server.failures == []


def test_an_agent_without_a_policy_says_so_and_a_bad_policy_ends_it(
    server: FakeServer, tmp_path: Path
) -> None:
    with agent_process(server, tmp_path / "state") as agent:
        wait_for(lambda: server.registrations)
        agent.terminate()
        _, log = agent.communicate(timeout=90)
    assert "there is no policy file: the server, at a socket of this user's own, may run any command" in log
    bad = tmp_path / "bad.toml"
    bad.write_text("version = 1\nallows = []\n")
    ended = run_agent("run", "--server", server.address, "--state", str(tmp_path / "s"), "--policy", str(bad))
    assert ended.returncode == 3
    assert "field 'allows'" in ended.stderr
