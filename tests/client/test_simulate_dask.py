"""``assay simulate --workers dask://...`` on a real Dask cluster, with the stand-in simulator."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from assay_client.simulating.dask_workers import DaskWorkers
from assay_client.simulating.designs import Design
from assay_client.simulating.installation import Simulator
from assay_client.simulating.launch_folder import LaunchFolder
from assay_client.simulating.tasks import LaunchTask
from assay_sampling.documents.designs import SimulationFailure
from assay_sampling.errors import NotReadyError, ParameterError
from assay_sampling.handover.isolated import IsolatedLaunch
from tests.services.dask_cluster import OwnDask
from tests.support.agent.fake_server import wait_for
from tests.support.client.simulate_bench import Bench, made_bench, processes_in

Assay = Callable[..., Any]
BIG = ("--design", "big=BIG")
ENDLESS = ("--design", "big=BIG:-stand_in_slow 600")
PRELOAD = Path(__file__).parents[1] / "support" / "client" / "other_files_on_workers.py"

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("simulate-dask")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[OwnDask]:
    """Two workers; the second sees other files where a file says so."""
    with OwnDask(options=("--preload", str(PRELOAD))) as own:
        yield own


@pytest.fixture
def bench(tmp_path: Path, assay: Assay) -> Bench:
    """With three launches."""
    return made_bench(tmp_path, assay, "random", "launches=3")


def on(bench: Bench, cluster: OwnDask, *more: object) -> list[str]:
    words = bench.command("--workers", str(cluster.place), *more)
    at = words.index("--jobs")
    return [str(word) for word in (*words[:at], *words[at + 2 :])]


def test_launches_on_workers_give_the_table_of_this_machine(
    bench: Bench, cluster: OwnDask, assay: Assay, tmp_path: Path
) -> None:
    here = json.loads(assay(*bench.command(*BIG, "--warm-up", "tail", "--json")).stdout)
    bench.output.rename(tmp_path / "here")
    ended = assay(*on(bench, cluster, *BIG, "--warm-up", "tail", "--json"))
    assert ended.code == 0, ended.stderr
    there = json.loads(ended.stdout)
    measured = {"wall_seconds", "cpu_seconds", "peak_memory_bytes"}
    for document in (here, there):
        for launch in document["launches"]:
            assert {name for name in measured if launch.pop(name) is not None} == measured
    assert there["launches"] == here["launches"]
    wheres = re.findall(r"^big, launch \d+ on made-([01]): .* cycles", ended.stderr, re.MULTILINE)
    assert len(wheres) == len(bench.weights)
    again = json.loads(assay(*on(bench, cluster, *BIG, "--warm-up", "tail", "--json")).stdout)
    assert all(launch["resumed"] for launch in again["launches"])


def test_a_failing_simulator_and_a_dead_worker_are_the_launchs_own(
    bench: Bench, cluster: OwnDask, assay: Assay
) -> None:
    """A worker is killed while it simulates: its launch is simulated by another."""

    def kill_a_worker() -> None:
        above = psutil.Process(int(processes_in(bench.output)[0])).parents()
        next(each for each in above if "spawn_main" in " ".join(each.cmdline())).kill()

    bad = max(bench.weights)
    design = f"big=BIG:-stand_in_slow 1 -stand_in_at {bad},crash"
    with once_simulating(bench, kill_a_worker):
        ended = assay(*on(bench, cluster, "--design", design, "--json"))
    assert ended.code == 6, ended.stderr
    document = json.loads(ended.stdout)
    assert [(each["sim_id"], each["kind"]) for each in document["failures"]] == [(bad, "crashed")]
    assert {each["sim_id"] for each in document["launches"]} == set(bench.weights) - {bad}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_a_driver_that_is_ended(
    bench: Bench, cluster: OwnDask, number: signal.Signals
) -> None:
    words = [Path(sys.executable).with_name("assay"), *on(bench, cluster, *ENDLESS)]
    driver = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: processes_in(bench.output))
    os.kill(driver.pid, number)
    driver.wait(timeout=60)
    assert driver.returncode in (128 + number, -number)
    if number == signal.SIGINT:
        assert not processes_in(bench.output)
    wait_for(lambda: not processes_in(bench.output))


def test_a_worker_with_other_files_gets_no_launches_while_another_is_there(
    bench: Bench, cluster: OwnDask, assay: Assay, tmp_path: Path
) -> None:
    from distributed import Client  # noqa: PLC0415 - takes a second to load

    with Client(cluster.place.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)  # one may have been killed before
    (bench.traces / "differs-on-made-1").touch()
    ended = assay(*on(bench, cluster, *BIG, "--json"))
    assert ended.code == 0, ended.stderr
    assert "worker made-1 gets no more launches: it has another trace there than the driver" in ended.stderr
    (bench.traces / "differs-on-made-0").touch()
    ended = assay(*on(bench, cluster, *BIG, "--force", "-o", tmp_path / "other", "--json"))
    assert ended.code == 6
    failures = json.loads(ended.stdout)["failures"]
    assert {each["kind"] for each in failures} == {"worker_differs"}
    assert len(failures) == len(bench.weights)
    assert re.fullmatch(r"worker made-[01]: it has another trace there than the driver", failures[0]["cause"])


def test_a_scheduler_that_is_not_there_and_jobs_are_refused(
    bench: Bench, cluster: OwnDask, assay: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = assay(*on(bench, cluster, *BIG), "--jobs", 2)
    assert (ended.code, "leave it out" in ended.stderr) == (2, True)
    monkeypatch.setattr("assay_client.simulating.dask_workers._CONNECT_SECONDS", 0.5)
    with pytest.raises(NotReadyError, match="does not answer"):
        DaskWorkers("dask://127.0.0.1:9")
    for place in ("tcp://lab:8786", "dask://lab", "dask://unix:/run/x", "dask+tls://127.0.0.1:9"):
        with pytest.raises(ParameterError):
            DaskWorkers(place)


def test_a_launch_that_workers_die_of_is_a_failure_of_its_own(cluster: OwnDask, tmp_path: Path) -> None:
    """What Dask says of a task whose workers died again and again."""
    from distributed import KilledWorker  # noqa: PLC0415 - takes a second to load

    launch = IsolatedLaunch(4, 5, tmp_path / "kernel-5.traceg", 1, ())
    folder = LaunchFolder(tmp_path / "big" / "launch-5", Design("big", tmp_path, (), ()), launch, {})
    task = LaunchTask(folder, Simulator(tmp_path, tmp_path / "accel-sim.out", None), 1.0)
    died: Future[Any] = Future()
    died.set_exception(KilledWorker("big-launch-5", "made-0", 3))
    workers = DaskWorkers(str(cluster.place))
    failure = workers.result(died, task)
    workers.close()
    assert isinstance(failure, SimulationFailure)
    assert (failure.kind, failure.sim_id, failure.cause) == ("worker_died", 5, "4 workers died of it")


def test_without_its_scheduler_the_command_ends_and_so_do_the_simulators(
    bench: Bench, cluster: OwnDask, assay: Assay
) -> None:
    """The last test of the cluster."""
    with once_simulating(bench, cluster.kill_scheduler):
        ended = assay(*on(bench, cluster, *ENDLESS))
    assert (ended.code, "the connection to the Dask scheduler was lost" in ended.stderr) == (10, True)
    assert not processes_in(bench.output)


@contextlib.contextmanager
def once_simulating(bench: Bench, act: Callable[[], None]) -> Iterator[None]:
    """Do something as soon as a launch is simulated, while the block runs."""

    def wait_and_act() -> None:
        wait_for(lambda: processes_in(bench.output))
        act()

    with ThreadPoolExecutor(1) as pool:
        acted = pool.submit(wait_and_act)
        yield
        acted.result()
