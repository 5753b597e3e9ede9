"""The program itself: started, stopped, killed at bad moments, and started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from assay_core.records.attempt import AttemptKey
from assay_protos.campaign_pb2 import SubmitRequest
from assay_protos.campaign_pb2_grpc import CampaignServiceStub
from assay_sampling.installation import install_command
from assay_sampling.readers.opening import open_recording
from assay_server.identity.authority import write_authority
from tests.support.identity.authorities import made_authority
from tests.support.server.made_segments import MadeSegment, made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import eventually

pytestmark = pytest.mark.processes

PROGRAM = str(Path(sys.executable).parent / "assay-server")
ONE_RUN = """\
campaign: made
workloads:
  - name: w
    recordings:
      - {device: V100, light: x.sqlite}
      - {device: A100, light: y.sqlite}
"""


class Process:
    """``assay-server`` over one state directory and one socket, started as often as it is killed."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.address = f"unix:{folder}/server.sock"
        self.child: subprocess.Popen[str] | None = None

    def start(self, *options: str) -> str:
        self.child = subprocess.Popen(
            [PROGRAM, "--state", str(self.state), "--listen", self.address, "--lease", "60s", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        assert line, self.child.communicate()[1]
        return line

    def end(self, number: int) -> int:
        child, self.child = self.child, None
        if child is None:
            return 0
        child.send_signal(number)
        child.communicate(timeout=90)
        return child.returncode

    def kill(self) -> None:
        assert self.end(signal.SIGKILL) == -signal.SIGKILL

    def files(self, folder: str) -> list[str]:
        return sorted(str(p.relative_to(self.state)) for p in (self.state / folder).rglob("*") if p.is_file())

    def launches(self, run_id: str) -> list[int]:
        with open_recording(self.state / "records" / run_id / "slice-00000.parquet") as recording:
            return [v for batch in recording.batches() for v in batch.records["launch"].to_pylist()]


@pytest.fixture
def process(short_path: Path) -> Iterator[Process]:
    process = Process(short_path)
    yield process
    process.end(signal.SIGKILL)


def test_it_says_where_it_listens_and_ends_with_sigterm(process: Process) -> None:
    assert process.start() == f"listening on {process.address}\n"
    assert (process.state / "address").read_text() == f"{process.address}\n"
    assert process.end(signal.SIGTERM) == 0
    assert not (process.state / "address").exists()
    process.start()
    assert process.end(signal.SIGINT) == 0


def test_a_signal_that_comes_many_times_is_one_request(process: Process) -> None:
    """Each ending thread of a killed parent sends one; a handler that takes a lock would wait for itself."""
    for _ in range(3):
        process.start()
        assert process.child is not None
        for _ in range(200):
            process.child.send_signal(signal.SIGTERM)
        assert process.end(signal.SIGTERM) == 0
        assert not (process.state / "address").exists()


def test_a_free_port_is_chosen_and_told_as_json(short_path: Path) -> None:
    write_authority(made_authority(), short_path / "s")
    own = f"unix:{short_path}/own.sock"
    child = subprocess.Popen(
        [PROGRAM, "--state", str(short_path / "s"), "--listen", "127.0.0.1:0", "--listen", own, "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    told = json.loads(child.stdout.readline())
    address, second = told["addresses"]
    assert (address.startswith("127.0.0.1:"), address.endswith(":0"), second) == (True, False, own)
    assert (short_path / "s" / "address").read_text() == f"{address}\n{own}\n"
    with PlayingAgent(own) as agent:
        assert agent.submit(ONE_RUN) == "made-1"
    child.terminate()
    assert (child.wait(timeout=90), child.stdout.read()) == (0, "")
    child.stdout.close()


def test_a_server_that_dies_of_a_fault_says_so_in_its_log(process: Process) -> None:
    process.start()
    assert process.child is not None
    process.child.send_signal(signal.SIGSEGV)
    log = process.child.communicate(timeout=90)[1]
    assert process.child.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in log
    assert "in wait" in log, "the stack of the main thread"
    process.start()  # what systemd and Kubernetes do then


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--listen", "0.0.0.0:7170"], 2, "make one with: assay-server init --state DIR"),
        (["--lease", "1s"], 2, "one lost heartbeat ends a lease of 1000 ms"),
        (["--listen", "unix:/no/such/folder/x.sock"], 2, "there is no folder /no/such/folder"),
    ],
)
def test_what_it_cannot_do_it_says_in_one_paragraph(
    short_path: Path, arguments: list[str], status: int, said: str
) -> None:
    done = subprocess.run(
        [PROGRAM, "--state", str(short_path / "s"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("assay-server: ") and said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_port_in_use_is_said_in_one_paragraph_and_nothing_else(short_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        write_authority(made_authority(), short_path / "state")
        ended = subprocess.run(
            [PROGRAM, "--state", short_path / "state", "--listen", address],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"},
        )
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"assay-server: listen address '{address}': cannot listen on it")
    assert ended.stderr.count("\n") == 1


def test_a_second_server_on_the_same_state_is_refused(process: Process, short_path: Path) -> None:
    process.start()
    assert process.child is not None
    done = subprocess.run(
        [PROGRAM, "--state", str(process.state), "--listen", f"unix:{short_path}/other.sock"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 8
    assert f"another assay-server has it (process {process.child.pid})" in done.stderr


@pytest.mark.parametrize("inside", ["records", "shared/of/all", "link"])
def test_a_shared_folder_within_its_own_state_folder_is_refused_before_anything_is_made(
    short_path: Path, inside: str
) -> None:
    state, folder = short_path / "state", short_path / "state" / inside
    if inside == "link":
        folder = short_path / "link"
        folder.symlink_to(state / "records")
    done = subprocess.run(
        [PROGRAM, "--state", str(state), "--listen", f"unix:{short_path}/s", "--records", str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"assay-server: --records: {folder} is within the state folder, which no other server opens; "
        f"leave it out, then records are in {state}, or name a folder elsewhere\n"
    )
    assert not state.exists()


def test_the_state_folder_as_the_place_of_records_is_where_they_are_anyway(process: Process) -> None:
    for options in ((), ("--records", str(process.state)), ("--records", f"{process.state}/"), ()):
        process.start(*options)
        assert process.end(signal.SIGTERM) == 0
        assert (process.state / "records").is_dir() and not (process.state / "records.json").exists()


def test_killed_after_an_acknowledgement_it_still_has_what_it_acknowledged(process: Process) -> None:
    process.start()
    segments = made_segments([300] * 12)
    with PlayingAgent(process.address) as agent:
        agent.register(("0", "1"))
        campaign_id = agent.submit(ONE_RUN)
        key, other = agent.lease("0").work.key, agent.lease("1").work.key
        acknowledged = 0
        for index, segment in enumerate(segments):
            [answer] = agent.upload(key, [segment])
            assert answer.index == index
            acknowledged += 1
            if index % 4 == 3:
                process.kill()
                process.start()
        # Nothing is sent again: every acknowledged segment must be there.
        assert agent.finish(key, acknowledged, 3600).published
        process.kill()
        process.start()
        assert agent.finish(key, acknowledged, 3600).published
        assert process.launches(key.run_id) == list(range(3600))
        # The lease of the other run has outlived all of it.
        assert not agent.heartbeat([other]).drop
        agent.upload(other, segments[:1])
        assert agent.finish(other, 1, 300).published
        assert agent.status(campaign_id).runs_done == 2
    assert process.files("staging") == []
    assert process.files("records") == [f"records/{campaign_id}.000{i}/slice-00000.parquet" for i in range(2)]


@pytest.mark.parametrize("after_seconds", [0.0, 0.01, 0.03, 0.06, 0.1, 0.2])
def test_killed_at_any_moment_between_upload_and_finish_the_end_is_the_same(
    process: Process, after_seconds: float
) -> None:
    process.start()
    segments = made_segments([5000] * 8)
    with PlayingAgent(process.address) as agent:
        agent.register()
        agent.submit(ONE_RUN)
        key = agent.lease().work.key
        sending = threading.Event()
        acknowledged: set[int] = set()
        worker = threading.Thread(
            target=send_until_published, args=(agent, key, segments, acknowledged, sending)
        )
        worker.start()
        sending.wait(60)
        threading.Event().wait(after_seconds)  # the moment of the kill is what the test varies
        process.kill()
        before = set(acknowledged)
        process.start()
        worker.join(timeout=60)
        assert not worker.is_alive()
        assert before <= acknowledged == set(range(8))
        detail = agent.run(key.run_id)
    assert [a.state for a in detail.attempts] == ["published"]
    assert process.launches(key.run_id) == list(range(40_000))
    assert process.files("records") == [f"records/{key.run_id}/slice-00000.parquet"]


def send_until_published(
    agent: PlayingAgent,
    key: AttemptKey,
    segments: list[MadeSegment],
    acknowledged: set[int],
    sending: threading.Event,
) -> None:
    """An agent that deletes what is acknowledged, and goes on after every break."""

    def messages() -> Iterator[object]:
        for segment in segments:
            if segment.index not in acknowledged:
                yield from agent.messages(key, segment)
                sending.set()

    while len(acknowledged) < len(segments):
        with contextlib.suppress(grpc.RpcError):
            for answer in agent.ingest.Upload(messages(), timeout=30, wait_for_ready=True):
                assert answer.HasField("ack"), answer
                acknowledged.add(answer.ack.segment)
    published = False
    while not published:
        with contextlib.suppress(grpc.RpcError):
            published = agent.finish(key, len(segments), sum(s.launches for s in segments)).published


def test_killed_during_the_analysis_it_analyses_again_and_leaves_no_worker(process: Process) -> None:
    process.start()
    assert process.child is not None
    with PlayingAgent(process.address) as agent:
        agent.register()
        campaign_id = agent.submit(ONE_RUN)
        for _ in range(2):
            agent.play(made_segments((2000,)))
        children = children_of(process.child.pid)
        process.kill()
        eventually(lambda: not any(alive(child) for child in children), "the end of the workers")
        process.start()
        ended = ("done", "failed")
        eventually(lambda: agent.status(campaign_id).state in ended, "the end of the campaign", 90)
        status = agent.status(campaign_id)
        assert status.state == "done", status.failure
    assert process.files("reports") == [
        f"reports/{campaign_id}/report.{form}" for form in ("html", "json", "parquet")
    ]


def children_of(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_number_that_would_fill_the_memory_is_refused_at_once(process: Process) -> None:
    """By the call itself: programs that people run look at the file before they send it."""
    process.start()
    assert process.child is not None
    text = (
        "campaign: b\ngpus: [A]\ndetailed: {first: 1099511627776, slice_launches: 1}\n"
        "workloads: [{name: w, command: [a]}]\n"
    )
    before = peak_bytes(process.child.pid)
    with grpc.insecure_channel(process.address) as channel:
        sent = CampaignServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            sent.Submit(SubmitRequest(campaign_yaml=text, file_name="b.yaml", base_directory="/"), timeout=60)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "b.yaml:3: field detailed.slice_launches: it makes 2,199,023,255,553 slices" in str(caught.value)
    assert peak_bytes(process.child.pid) - before < 64 << 20


def peak_bytes(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def test_without_its_extra_the_program_names_it(short_path: Path) -> None:
    code = (
        "import sys; sys.modules['sqlalchemy'] = None; "
        f"sys.argv = ['assay-server', '--state', {str(short_path / 's')!r}]; "
        "from assay_server.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 9
    assert done.stderr == (
        "assay-server: assay-server: the Python module 'sqlalchemy' is not installed; "
        f"install it with: {install_command('server')}\n"
    )
