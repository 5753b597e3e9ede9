"""The usual server and agent in this process, over the same gRPC on a private Unix socket."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay_client.ending import raise_if_asked
from assay_client.hopeless import never_begin, never_go_on
from assay_client.local_box import missing_extra
from assay_client.places import private_socket_address
from assay_client.remote.client import Client
from assay_sampling.errors import AssayError, NotReadyError

if TYPE_CHECKING:
    from assay_agent.daemon.agent import Agent

_AGENT_START_SECONDS = 30.0
_AGENT_STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.02
_HEARTBEAT_MS = 500
_ELSEWHERE = (
    "correct the campaign's gpus, or submit it to a server whose agents have them (assay lab submit); see "
    "assay doctor --for agent"
)
_HERE_VIRTUAL = (
    "a synthetic campaign runs only on virtual GPUs: offer each of its gpus with assay run --virtual KIND, "
    "or submit it (assay lab submit) to a server whose agents run with --virtual KIND"
)


class LocalService:
    """A server and an agent in this process. As a context manager it starts both, and stops them in order.

    Args:
        state_directory: "server" and "agent" in it keep their state.
        virtual_gpus: what the agent offers beside the GPUs of this machine, KIND or KIND:COUNT each.
        begins: whether the agent measures from the start, or waits for :meth:`begin`.
    """

    address: str

    def __init__(
        self, state_directory: Path, virtual_gpus: Sequence[str] = (), *, begins: bool = True
    ) -> None:
        self._state = state_directory
        self._begins = begins
        self._virtual_gpus = tuple(virtual_gpus)
        self._campaign_id: str | None = None
        self._agent: Agent | None = None
        self._agent_error: Exception | None = None
        self._thread: threading.Thread | None = None
        self._resources = contextlib.ExitStack()

    def __enter__(self) -> LocalService:
        with contextlib.ExitStack() as resources:
            self.address = resources.enter_context(private_socket_address())
            resources.enter_context(_running_server(self._state, self.address))
            resources.enter_context(self._with_agent())
            if self._begins:
                self.begin()
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._resources.close()

    def begin(self) -> None:
        """Let the agent measure."""
        if self._thread is not None:
            self._thread.start()

    def serve(self, campaign_id: str) -> None:
        """Remember the campaign: if the agent breaks, it is cancelled, so that nobody waits for ever."""
        self._campaign_id = campaign_id
        self.raise_agent_error()

    def refuse_what_cannot_begin(self, client: Client) -> None:
        """Cancel a campaign with runs for which this machine lacks a GPU or a tool; raises NotReadyError."""
        campaign_id, agent = self._campaign_id, self._agent
        if campaign_id is None or agent is None:
            return
        deadline = time.monotonic() + _AGENT_START_SECONDS
        while not agent.registered and self._agent_error is None and time.monotonic() < deadline:
            raise_if_asked()
            time.sleep(_LOOK_SECONDS)
        self.raise_agent_error()
        status = client.summary(campaign_id)
        stuck, reason = never_begin(status)
        if agent.registered and stuck:
            client.cancel(campaign_id)
            raise NotReadyError(
                f"campaign {campaign_id}",
                f"{stuck:,} of {status['runs_total']:,} runs can never start here: {reason}",
                _HERE_VIRTUAL if status["synthetic"] else _ELSEWHERE,
            )

    def while_it_can_go_on(
        self, client: Client, statuses: Iterable[Mapping[str, Any]]
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the statuses; once no run can continue (GPUs lost, a full disk), cancel the campaign.

        Raises NotReadyError then: no other agent will ever come.
        """
        for status in statuses:
            yield status
            runs, reason = never_go_on(status)
            if runs:
                client.cancel(status["campaign_id"])
                raise NotReadyError(
                    f"campaign {status['campaign_id']}",
                    f"{runs:,} of {status['runs_total']:,} runs cannot continue here: {reason}",
                    f"the agent's state folder is {self._state / 'agent'} (assay-agent quarantine --state)",
                )

    def raise_agent_error(self) -> None:
        """Raise the error that broke the agent, if there is one."""
        if self._agent_error is not None:
            raise self._agent_error

    @contextlib.contextmanager
    def _with_agent(self) -> Iterator[None]:
        try:
            from assay_agent.config import AgentSettings  # noqa: PLC0415
            from assay_agent.daemon.agent import Agent  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise missing_extra(error) from error
        # Attempts still under way when the campaign has ended are not needed: nothing to drain.
        config = AgentSettings(
            server=self.address,
            state_dir=self._state / "agent",
            name="local",
            virtual=self._virtual_gpus,
            drain_seconds=0.0,
        )
        agent = self._agent = Agent(config)
        thread = threading.Thread(target=self._run_agent, args=(agent,), name="assay-agent", daemon=True)
        self._thread = thread
        try:
            yield
        finally:
            if thread.ident is not None:  # it was started
                agent.stop()
                thread.join(_AGENT_STOP_SECONDS)

    def _run_agent(self, agent: Agent) -> None:
        try:
            agent.run()
        except Exception as error:  # noqa: BLE001 - handed to the thread that waits, which raises it
            self._agent_error = error
            if self._campaign_id is not None:
                with contextlib.suppress(AssayError), Client(self.address) as client:
                    client.cancel(self._campaign_id)


@contextlib.contextmanager
def _running_server(state: Path, address: str) -> Iterator[None]:
    try:
        from assay_server.app import Server, ServerSettings  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    config = ServerSettings(state_dir=state / "server", listen=(address,), heartbeat_ms=_HEARTBEAT_MS)
    with Server(config):
        yield
