"""Running an agent in this process: what ``run`` and ``slurm-job`` share."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable

from assay_agent.cli.policy import policy_in_force
from assay_agent.config import AgentSettings
from assay_agent.daemon.agent import Agent
from assay_core.hangup import Terminal
from assay_core.program_log import log_crashes, set_up_log
from assay_sampling.errors import AssayError

_log = logging.getLogger(__name__)

_ENDED = b"\0"  # not a signal's number


def run_agent(
    settings: AgentSettings,
    again: Callable[[], AgentSettings],
    on_stop: Callable[[], None] = lambda: None,
    *,
    signals_reach_all: bool = False,
) -> None:
    """Run an agent until it is told to stop.

    Args:
        settings: of the agent.
        again: settles them once more, at SIGHUP.
        on_stop: called once, after the agent was told to stop by a signal.
        signals_reach_all: as of :class:`Agent`.
    """
    set_up_log(settings.log_level, settings.log_format)
    log_crashes()
    agent = Agent(_with_policy(settings), signals_reach_all=signals_reach_all)

    def reload() -> None:
        try:
            agent.reload(_with_policy(again()))
        except AssayError as error:
            _log.error("reload is refused, and nothing has changed: %s", error)
        else:
            set_up_log(agent.settings.log_level, agent.settings.log_format)

    _run_until_signalled(agent, reload, on_stop)


def _with_policy(settings: AgentSettings) -> AgentSettings:
    return settings.model_copy(update={"policy_file": policy_in_force(settings.policy_file)})


def _run_until_signalled(agent: Agent, reload: Callable[[], None], on_stop: Callable[[], None]) -> None:
    """Run the agent in its own thread, so that a signal never finds one of its locks held.

    SIGHUP reloads, unless the terminal of this process has gone: then the agent stops, as after SIGTERM.
    """
    terminal = Terminal()
    problems: list[BaseException] = []
    # Signals wake the main thread through a socket: one that comes just before it waits is not lost.
    waiting, waking = socket.socketpair()
    waking.setblocking(False)

    def work() -> None:
        try:
            agent.run()
        except BaseException as problem:  # noqa: BLE001 - raised again below, in the main thread
            problems.append(problem)
        finally:
            waking.send(_ENDED)

    with waiting, waking:
        signal.set_wakeup_fd(waking.fileno())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda received, frame: None)
        thread = threading.Thread(target=work, name="assay-agent", daemon=True)
        thread.start()
        again = False
        while (received := waiting.recv(1)) != _ENDED:
            if received[0] == signal.SIGHUP and not terminal.is_gone:
                reload()
                continue
            _log.info("%s: stopping", signal.Signals(received[0]).name)
            agent.stop(at_once=again)
            if not again:
                on_stop()
            again = True
        thread.join()
        signal.set_wakeup_fd(-1)
    if problems:
        raise problems[0]
