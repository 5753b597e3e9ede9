"""Running tools: output, time limits, cancelling, and that no process is ever left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from assay_core.processes.tool_run import EndingSteps, ToolResult, run_tool
from tests.support.agent.fake_server import wait_for

QUICK = EndingSteps(interrupt_seconds=0.3, terminate_seconds=0.3)
SLEEP = "import time; time.sleep(600)"
# A tool with a child in a session of its own, and a grandchild that lost its parent; all deaf to signals.
TREE = """
import os, signal, subprocess, sys, time
deaf = "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (2, 15)]; print('up', flush=True); "
def start(code, **more):
    child = subprocess.Popen([sys.executable, "-S", "-c", deaf + code], stdout=subprocess.PIPE, **more)
    child.stdout.readline()
    return child.pid
middle = '''
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", %r + "time.sleep(600)"], start_new_session=True,
                         stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
''' % deaf
parent = subprocess.Popen([sys.executable, "-S", "-c", middle], stdout=subprocess.PIPE, text=True)
orphan = int(parent.stdout.readline())
parent.wait()
pids = [os.getpid(), start("time.sleep(600)", start_new_session=True), orphan]
for number in (2, 15):
    signal.signal(number, signal.SIG_IGN)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(" ".join(map(str, pids)))
os.replace(sys.argv[1] + ".new", sys.argv[1])
if sys.argv[2] == "stay":
    time.sleep(600)
"""


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-S", "-c", code, *arguments]


def run(argv: list[str], directory: Path, **more: object) -> ToolResult:
    options: dict[str, object] = {
        "environment": {"LC_ALL": "C"},
        "timeout_seconds": 60,
        "ending": QUICK,
        **more,
    }
    return run_tool(argv, directory=directory, **options)  # type: ignore[arg-type]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state != b"Z"


def pids_of(path: Path) -> list[int]:
    wait_for(path.exists)
    return [int(text) for text in path.read_text().split()]


def test_the_end_and_both_channels_are_reported(tmp_path: Path) -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    result = run(python(code), tmp_path)
    assert (result.exit_code, result.signal, result.stdout, result.stderr) == (7, None, "out\n", "err\n")
    assert (result.timed_out, result.cancelled, result.ending) == (False, False, "exit status 7")


def test_a_signal_is_told_from_an_exit_status(tmp_path: Path) -> None:
    result = run(python("import os; os.kill(os.getpid(), 9)"), tmp_path)
    assert (result.exit_code, result.signal) == (None, 9)


def test_what_cannot_be_started_is_said(tmp_path: Path) -> None:
    result = run(["/no/such/tool"], tmp_path)
    assert "'/no/such/tool' cannot be run: No such file or directory" in result.problem


def test_the_environment_is_whole_and_stdin_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_SECRET", "hunter2")
    code = "import os, sys; print(sorted(os.environ), repr(sys.stdin.read()), os.getcwd())"
    result = run(python(code), tmp_path, environment={"A": "1"})
    names, rest = result.stdout.split("] ")
    assert set(names.strip("[]").replace("'", "").split(", ")) <= {"A", "LC_CTYPE"}
    assert rest == f"'' {tmp_path}\n"


def test_long_output_keeps_its_beginning_and_end(tmp_path: Path) -> None:
    result = run(python("print('first'); print('x' * 10_000_000); print('last')"), tmp_path)
    assert result.stdout.startswith("first\nxxx") and result.stdout.endswith("xxx\nlast\n")
    assert "bytes left out" in result.stdout
    assert len(result.stdout) < 140_000


def test_output_can_go_to_a_file(tmp_path: Path) -> None:
    result = run(python("print('x' * 1_000_000)"), tmp_path, stdout_path=tmp_path / "out")
    assert result.stdout == ""
    assert (tmp_path / "out").stat().st_size == 1_000_001


def test_a_tool_in_time_limit_gets_sigint_first(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "def polite(*_): print('interrupted', flush=True); sys.exit(3)\n"
        "signal.signal(signal.SIGINT, polite)\n"
        "print('up', flush=True)\n"
        "time.sleep(600)"
    )
    result = run(python(code), tmp_path, timeout_seconds=5.0, ending=EndingSteps(300, 300))
    assert (result.timed_out, result.exit_code, result.stdout) == (True, 3, "up\ninterrupted\n")


def test_a_deaf_tree_is_killed_whole(tmp_path: Path) -> None:
    pids_file = tmp_path / "pids"
    cancelled = threading.Event()
    found: list[int] = []

    def cancel() -> None:
        found.extend(pids_of(pids_file))
        cancelled.set()

    thread = threading.Thread(target=cancel)
    thread.start()
    result = run(python(TREE, str(pids_file), "stay"), tmp_path, cancelled=cancelled)
    thread.join()
    assert (result.cancelled, result.timed_out, result.signal) == (True, False, signal.SIGKILL)
    assert len(found) == 3
    assert not any(alive(pid) for pid in found)


def test_what_a_tool_leaves_behind_is_ended_with_it(tmp_path: Path) -> None:
    result = run(python(TREE, str(tmp_path / "pids"), "go"), tmp_path)
    assert result.exit_code == 0
    assert not any(alive(pid) for pid in pids_of(tmp_path / "pids"))


AGENT = """
import sys
from pathlib import Path
from assay_core.processes.tool_run import run_tool
folder = Path(sys.argv[1])
run_tool([sys.executable, "-S", "-c", sys.argv[2], str(folder / "pids"), "stay"],
         environment={}, directory=folder, timeout_seconds=600)
"""


@pytest.mark.processes
def test_no_process_outlives_an_agent_that_is_killed(tmp_path: Path) -> None:
    agent = subprocess.Popen([sys.executable, "-c", AGENT, str(tmp_path), TREE])
    found = pids_of(tmp_path / "pids")
    assert all(alive(pid) for pid in found)
    agent.kill()
    agent.wait()
    wait_for(lambda: not any(alive(pid) for pid in found))


@pytest.mark.processes
def test_a_lock_is_held_until_the_last_process_has_ended(tmp_path: Path) -> None:
    import fcntl  # noqa: PLC0415

    script = (
        AGENT.replace("timeout_seconds=600", "timeout_seconds=600, held=(lock.fileno(),)")
        .replace("folder = Path", "import fcntl\nfolder = Path")
        .replace(
            "run_tool([", "lock = open(folder / 'lock', 'w'); fcntl.flock(lock, fcntl.LOCK_EX)\nrun_tool(["
        )
    )
    agent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path), TREE])
    found = pids_of(tmp_path / "pids")
    agent.kill()
    agent.wait()
    with (tmp_path / "lock").open("w") as lock:
        until = time.monotonic() + 60
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.02)
        assert not any(alive(pid) for pid in found)


def test_orders_to_a_tool_that_has_just_ended_are_lost_without_an_error(tmp_path: Path) -> None:
    cancelled, ends = threading.Event(), tmp_path / "ends"
    cancelled.set()

    def until_it_ended() -> None:
        wait_for(ends.exists)
        time.sleep(1)

    result = run_tool(
        ["/bin/sh", "-c", "exec touch ends"],
        environment={},
        directory=tmp_path,
        timeout_seconds=120,
        cancelled=cancelled,
        # By the first order, tool and supervisor have ended: nobody reads it.
        before_ending=until_it_ended,
    )
    assert (result.exit_code, result.cancelled) == (0, True)


def test_the_tool_dies_with_its_supervisor(tmp_path: Path) -> None:
    thread_result: list[ToolResult] = []
    code = (
        f"import os; open({str(tmp_path / 'pid')!r}, 'w').write(f'{{os.getppid()}} {{os.getpid()}}'); {SLEEP}"
    )
    thread = threading.Thread(target=lambda: thread_result.append(run(python(code), tmp_path)))
    thread.start()
    wait_for(lambda: (tmp_path / "pid").exists() and len((tmp_path / "pid").read_text().split()) == 2)
    supervisor, tool = (int(text) for text in (tmp_path / "pid").read_text().split())
    os.kill(supervisor, signal.SIGKILL)
    thread.join(60)
    assert not thread.is_alive()
    # The signal is sent before we learn that the supervisor ended; the tool may take a moment to die.
    wait_for(lambda: not alive(tool))
    assert thread_result[0].ending == "ended in an unknown way"


def test_the_processor_time_and_the_memory_of_the_whole_tree_are_reported(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\nheld = bytearray(100 << 20)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {busy!r}], check=True)"
    result = run(python(code), tmp_path)
    assert result.exit_code == 0
    assert result.cpu_seconds is not None and result.peak_memory_bytes is not None
    assert result.cpu_seconds >= 0.3
    assert result.peak_memory_bytes >= 100 << 20
    assert run(["no-such-tool"], tmp_path).cpu_seconds is None
