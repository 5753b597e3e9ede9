"""The real ``assay-agent`` as a process of its own: killed, stopped, refused, and light to import."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from assay_agent.gpus.inventory import agent_version
from assay_sampling.installation import install_command
from tests.support.agent.agent_processes import agent_process, run_agent, write_recording
from tests.support.agent.fake_server import FakeServer, batches_of, table_of, wait_for

pytestmark = pytest.mark.processes


# Messages that the server has received of an agent when it is killed.
KILLED_AFTER = (0, 1, 2, 3, 5, 7, 8, 9, 11, 12)


def test_an_agent_killed_at_many_moments_delivers_every_launch_once(
    server: FakeServer, tmp_path: Path
) -> None:
    paths = [write_recording(tmp_path / f"{seed}.parquet", 150_000, seed) for seed in (0, 1)]
    runs = {f"c-1.{i:04d}": i % 2 for i in range(14)}
    for run_id, seed in runs.items():
        server.add_run(run_id, recorded={"path": str(paths[seed])})
    for messages in KILLED_AFTER:
        registered = len(server.registrations)
        with agent_process(server, tmp_path / "state") as process:
            wait_for(lambda before=registered: len(server.registrations) > before)
            wait_for(lambda least=server.received + messages: server.received >= least)
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert len(server.published) < len(runs), "every kill hit an agent at work"
    with agent_process(server, tmp_path / "state"):
        wait_for(lambda: len(server.published) == len(runs), 60)
    expected = [table_of(batches_of(150_000, 65_536, seed=seed)) for seed in (0, 1)]
    for run_id, seed in runs.items():
        assert server.table(run_id).equals(expected[seed])
    assert len({r.agent_id for r in server.registrations}) == 1
    assert (
        len({r.session_id for r in server.registrations})
        == len(server.registrations)
        == len(KILLED_AFTER) + 1
    )


def test_an_agent_killed_between_its_seal_and_its_end_sends_without_measuring_again(
    server: FakeServer, tmp_path: Path
) -> None:
    path = write_recording(tmp_path / "r.parquet", 200_000, 1)
    server.hold_acks.clear()
    server.add_run("c-1.0001", recorded={"path": str(path)})
    with agent_process(server, tmp_path / "state") as process:
        wait_for(lambda: list((tmp_path / "state" / "spool").glob("*/seal.json")))
        process.kill()
        process.wait()
    server.hold_acks.set()
    path.unlink()
    with agent_process(server, tmp_path / "state"):
        wait_for(lambda: server.published)
    assert server.table("c-1.0001").equals(table_of(batches_of(200_000, 65_536, seed=1)))
    assert server.published["c-1.0001"][0][2] == 1


def test_sigterm_ends_an_agent_in_order(server: FakeServer, tmp_path: Path) -> None:
    with agent_process(server, tmp_path / "state") as process:
        wait_for(lambda: server.registrations)
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0


def test_an_agent_that_dies_of_a_fault_says_so_in_its_log(server: FakeServer, tmp_path: Path) -> None:
    with agent_process(server, tmp_path / "state") as process:
        wait_for(lambda: server.registrations)
        process.send_signal(signal.SIGSEGV)
        log = process.communicate(timeout=60)[1]
    assert "Fatal Python error: Segmentation fault" in log


def test_lines_of_the_log_say_which_attempt_they_are_about(server: FakeServer, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "r.parquet", 100, 1)
    server.add_run("c-1.0001", recorded={"path": str(path)})
    with agent_process(server, tmp_path / "state", "--log-format", "json") as process:
        wait_for(lambda: server.published)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=90)
    lines = [json.loads(line) for line in log.splitlines()]
    about = [each for each in lines if each["logger"] == "assay_agent.daemon.attempts"]
    assert {(each["run"], each["slice"], each["attempt"]) for each in about} == {("c-1.0001", 0, 1)}
    assert "run" not in lines[0], "registering is about no run"


def test_sigterm_ends_an_agent_that_never_found_its_server(server: FakeServer, tmp_path: Path) -> None:
    server.stop()
    with agent_process(server, tmp_path / "state") as process:
        wait_for((tmp_path / "state" / "spool").is_dir)
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0


def test_a_second_agent_on_the_same_state_says_so_in_one_paragraph(
    server: FakeServer, tmp_path: Path
) -> None:
    with agent_process(server, tmp_path / "state") as first:
        wait_for(lambda: server.registrations)
        with agent_process(server, tmp_path / "state") as second:
            _, said = second.communicate(timeout=90)
        assert second.returncode == 8
        assert said.strip().splitlines() == [
            f"assay-agent: state directory {tmp_path / 'state'}: "
            f"another agent uses it (process {first.pid}); stop that agent, or give this one another --state"
        ]


def test_a_full_disk_under_the_spool_fails_the_run_with_cause_and_remedy(
    server: FakeServer, tmp_path: Path
) -> None:
    path = write_recording(tmp_path / "r.parquet", 200_000, 1)
    server.add_run("c-1.0001", recorded={"path": str(path)})
    with agent_process(server, tmp_path / "state", "--spool-limit", "10000"):
        wait_for(lambda: server.failures)
    failed = server.failures[0].failure
    assert failed.failure_class == "disk_full"
    assert "no space" in failed.cause and "--spool-limit" in failed.remedy


def test_the_inventory_is_one_json_document() -> None:
    done = run_agent("inventory", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["agent_version"] == agent_version()
    assert document["cpu_count"] >= 1 and document["memory_bytes"] > 1 << 28
    assert bool(document["devices"]) != bool(document["no_device_reason"])


def test_errors_are_paragraphs_with_exit_codes(tmp_path: Path) -> None:
    done = run_agent("run", "--server", "far.example", "--state", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("assay-agent: server address: 'far.example' is not an address; give ")
    assert run_agent("run", "--log-level", "loud").returncode == 2
    assert run_agent("run", "--recorded-slots", "-1").returncode == 2


def test_a_server_elsewhere_is_refused_without_a_policy_and_without_a_certificate(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("version = 1\nallow_root = true\n")
    far = ("run", "--server", "far.example:80", "--state", str(tmp_path / "state"))
    for options, said in (
        (
            (),
            "this agent: there is no policy file, and over TCP other people and other machines ask for runs",
        ),
        (("--policy", str(policy)), "server far.example:80: over TCP agent and server prove who they are"),
    ):
        done = run_agent(*far, *options)
        assert done.returncode == 10
        assert done.stderr.splitlines()[-1].startswith(f"assay-agent: {said}")
        assert "Traceback" not in done.stderr


BLOCKED = """
import sys

EXTRAS = "sklearn pandas sqlalchemy scipy psutil pynvml yaml jinja2".split()

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
import pkgutil
import assay_agent
for module in pkgutil.walk_packages(assay_agent.__path__, "assay_agent."):
    __import__(module.name)
import assay_sampling.readers.opening
from assay_agent.gpus.inventory import read_inventory
print(read_inventory().no_device_reason)
print(sorted(m for m in sys.modules if m.startswith("assay_server") or m.startswith("assay_client")))
"""


def test_the_agent_imports_without_any_extra() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"the Python module 'pynvml' is not installed; install it with: {install_command('agent')}",
        "[]",
    ]


def test_only_the_daemon_and_the_doctor_load_what_measures() -> None:
    heavy = ["numpy", "pyarrow", "grpc", "cryptography"]
    code = (
        f"import sys, assay_agent.main; print(sorted(set({heavy}) & set(sys.modules)))\n"
        # A slot that needs a reader loads it; all readers together are a quarter of an agent's start.
        "import assay_agent.daemon.agent; print('assay_sampling.readers.opening' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nFalse\n"
