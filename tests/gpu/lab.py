"""A server and one agent as processes, for the proof on a GPU: the very programs that a lab runs."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay_client.remote.client import Client
from assay_sampling.errors import AssayError

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_LOOK_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1
ENDED = ("done", "failed", "cancelled")


class LabError(Exception):
    """A program did not come up, or went away; the text has the end of its log."""


@dataclass(frozen=True)
class Lab:
    """A running server with its agent."""

    address: str
    state: Path

    def run(
        self, campaign: Path, say: Callable[[str], None], most_seconds: float = math.inf
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Submit a campaign and wait for its end; its last status and its report ({} where it has none).

        After ``most_seconds`` what has not finished is cancelled.
        """
        with Client(self.address) as client, contextlib.ExitStack() as stack:
            identifier = client.submit(campaign)
            stack.enter_context(self._cancelled_after(identifier, most_seconds))
            status: dict[str, Any] = {}
            told = -1
            for status in client.watch(identifier):
                if status["runs_done"] != told:
                    told = status["runs_done"]
                    total, failed = status["runs_total"], status["runs_failed"]
                    say(f"{identifier}: {told} of {total} runs done, {failed} failed")
                if status["state"] in ENDED:
                    break
            try:
                return status, client.report(identifier).to_document()
            except AssayError as problem:
                say(f"{identifier} has no report: {problem}")
                return status, {}

    @contextlib.contextmanager
    def _cancelled_after(self, identifier: str, seconds: float) -> Iterator[None]:
        if math.isinf(seconds):
            yield
            return

        def cancel() -> None:
            with Client(self.address) as client, contextlib.suppress(AssayError):
                client.cancel(identifier)

        timer = threading.Timer(max(seconds, 0.0), cancel)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def runs(self, status: dict[str, Any]) -> list[dict[str, Any]]:
        """All that is known of each run of a campaign."""
        with Client(self.address) as client:
            return [client.run(run["run_id"]) for run in status["runs"]]


@contextlib.contextmanager
def running_lab(
    folder: Path, temporary: Path, policy: Path, virtual: Sequence[str] = (), agent: str = "assay_agent.main"
) -> Iterator[Lab]:
    """Start both programs; stop them in order. Raises LabError.

    Args:
        folder: their states and logs.
        temporary: a folder with a short path, for sockets and for what the agent makes in its TMPDIR.
        policy: the agent's policy file.
        virtual: kinds of virtual GPUs.
        agent: the module of the agent; another one than the product's only in a rehearsal.
    """
    with contextlib.ExitStack() as stack:
        address = f"unix:{temporary}/server"
        state = folder / "server"
        stack.enter_context(
            _program(
                folder / "server.log",
                ["assay_server.main", "--state", str(state), "--listen", address, "--analysis-workers", "2"],
                ready=(state / "address").exists,
                temporary=temporary,
            )
        )
        words = [agent, "run", "--server", address, "--state", str(folder / "agent")]
        words += ["--name", "gpu-test", "--recorded-slots", "0", "--policy", str(policy), "--drain", "5s"]
        for kind in virtual:
            words += ["--virtual", kind]
        log = folder / "agent.log"
        stack.enter_context(
            _program(log, words, ready=lambda: "registered with" in _text(log), temporary=temporary)
        )
        yield Lab(address, state)


@contextlib.contextmanager
def _program(log: Path, words: Sequence[str], ready: Callable[[], bool], temporary: Path) -> Iterator[None]:
    # Nobody's configuration or policy but ours: the box may have an agent of its own.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ASSAY_AGENT_")}
    environment["TMPDIR"] = str(temporary)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
            preexec_fn=_ends_with_us,  # noqa: PLW1509 - nothing is done between but one call
        )
    try:
        until = time.monotonic() + _START_SECONDS
        while not ready():
            if process.poll() is not None or time.monotonic() > until:
                raise LabError(f"{words[0]} does not come up: {_text(log)[-2000:]}")
            time.sleep(_LOOK_SECONDS)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ends_with_us() -> None:
    """Where the proof is killed, its programs are told to stop, and undo what they changed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _text(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""
