"""A program that ``make test`` starts as a fork has what one has that the kernel starts."""

from __future__ import annotations

import json
import multiprocessing.util
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay_client.demonstration import bound
from tests.support.fork_server.asking import ForkServer, Start, start_of

SAYS = """\
import json, os, resource, sys
said = {
    "argv": sys.argv, "main": sys.modules["__main__"].__file__, "path": sys.path[0], "folder": os.getcwd(),
    "environment": dict(os.environ), "umask": os.umask(0), "limits": resource.getrlimit(resource.RLIMIT_CORE),
    "descriptors": sorted(int(each) for each in os.listdir("/proc/self/fd"))[:3], "parent": os.getppid(),
    "leads": os.getsid(0) == os.getpid(), "input": sys.stdin.read(), "terminal": sys.stdout.isatty(),
    "command": open("/proc/self/cmdline").read().rstrip("\\0"), "name": open("/proc/self/comm").read(),
}
print(json.dumps(said))
print("to stderr", file=sys.stderr)
sys.exit(7)
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    made = ForkServer()
    yield made
    made.close()


def forked(forks: ForkServer, start: Start, folder: Path) -> tuple[Any, str, int]:
    """What it said, its errors, and its exit status as this process's child."""
    (folder / "input").write_text("given")
    with (
        (folder / "input").open() as given,
        (folder / "out").open("w") as out,
        (folder / "err").open("w") as err,
    ):
        process = forks.begin(start, [given.fileno(), out.fileno(), err.fileno()])
        _, status = os.waitpid(process, 0)
    said = json.loads((folder / "out").read_text())
    return said, (folder / "err").read_text(), os.waitstatus_to_exitcode(status)


@pytest.mark.processes
@pytest.mark.parametrize("new_session", [False, True])
def test_a_fork_has_what_an_executed_program_has(
    forks: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, new_session: bool
) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!{sys.executable}\n{SAYS}")
    script.chmod(0o755)
    monkeypatch.setenv("ASSAY_OF_THIS_TEST", "\udcff")
    limits, mask = resource.getrlimit(resource.RLIMIT_CORE), os.umask(0o27)
    resource.setrlimit(resource.RLIMIT_CORE, (0, limits[1]))
    try:
        argv = [str(script), "--one", "two words"]
        start = Start(argv, dict(os.environ), str(tmp_path), new_session)
        said, errors, status = forked(forks, start, tmp_path)
        executed = subprocess.run(
            argv, cwd=tmp_path, env=os.environ, start_new_session=new_session, input="given",
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limits)
        os.umask(mask)
    assert said == json.loads(executed.stdout)
    assert (errors, status) == (executed.stderr, executed.returncode) == ("to stderr\n", 7)
    assert (said["parent"], said["leads"], said["input"]) == (os.getpid(), new_session, "given")


@pytest.mark.processes
@pytest.mark.parametrize(("parent", "status"), [(os.getpid, 7), (os.getppid, 1)])
def test_a_bound_program_begins_only_as_the_child_of_its_parent(
    forks: ForkServer, tmp_path: Path, parent: Callable[[], int], status: int
) -> None:
    script = tmp_path / "script"
    script.write_text("import sys\nsys.exit(7)\n")
    start = Start([str(script)], dict(os.environ), str(tmp_path), new_session=True, bound_to=parent())
    _, ended = os.waitpid(forks.begin(start, [0, 1, 2]), 0)
    assert os.waitstatus_to_exitcode(ended) == status


@pytest.mark.processes
def test_workers_of_multiprocessing_are_forks_and_the_tracker_of_its_resources_is_not(
    forks: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    begin = forks.begin

    def noted(start: Start, descriptors: Any) -> int:
        begun.append(" ".join(start.argv))
        return begin(start, descriptors)

    monkeypatch.setattr(forks, "begin", noted)
    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", forks.worker)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(os.getppid) == os.getpid()
        assert "assay_server.app" in pool.apply(sorted, (pool.apply(loaded),))
    assert len(begun) == 1 and "spawn_main" in begun[0]


def loaded() -> list[str]:
    """The modules of the worker, whose main module does not import the server."""
    return list(sys.modules)


def test_only_programs_start_as_forks_and_only_in_the_environment_of_the_process_that_forks(
    tmp_path: Path,
) -> None:
    forks, program = ForkServer(), Path(sys.executable).with_name("assay")

    def may(*argv: object, folder: Path = tmp_path, **variables: str) -> bool:
        start = start_of(argv, folder, os.environ | variables, new_session=False)
        return start is not None and forks.can_begin(start)

    assert may(program, "--help")
    assert may(program, "--help", ASSAY_SERVER="far.example", HOME="/nowhere")
    assert may(sys.executable, "-m", "assay_agent.main", "run")
    assert may(sys.executable, "-I", "-S", bound.__file__, "7", program, "--help")
    assert not may(program, folder=tmp_path / "none")
    assert not may(program, PYTHONHASHSEED="7")
    assert not may(program, LC_ALL="C")
    assert not may(sys.executable, "-c", "import assay_agent")
    assert not may("unshare", program)
