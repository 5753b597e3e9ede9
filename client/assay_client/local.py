"""What the client needs of server and agent in this process: to run a campaign, plan one, examine the box.

``assay run`` has the same server and agent as everywhere, over the same gRPC on a private Unix socket. Only
this module imports them, and only when it is used.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay_client.campaign_checks import Finding, Surroundings, look_at, refuse
from assay_client.client import Client
from assay_client.connection import utf8
from assay_client.ending import ended_in_order, raise_if_asked
from assay_client.files import AnyPath, read_campaign
from assay_client.outcome import Follow, Outcome, last_of, see_through
from assay_client.places import default_state_directory, private_socket_address
from assay_sampling.errors import AssayError, MissingExtraError, NotReadyError, StorageError
from assay_sampling.identity import device_key
from assay_sampling.private_folders import take_state_folder

if TYPE_CHECKING:
    from assay_agent.daemon import Agent

_AGENT_START_SECONDS = 30.0
_AGENT_STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.02
# So often in a row a slot may fail before nobody waits for it any more.
_RESTS_WAITED_FOR = 3
_HEARTBEAT_MS = 500
# What an agent leaves free on its disk in any case (assay_agent.config).
LEAST_FREE_BYTES = 256 << 20


def run_campaign(
    campaign_file: AnyPath,
    state_directory: AnyPath | None = None,
    *,
    output_directory: AnyPath | None = None,
    follow: Follow = last_of,
) -> Outcome:
    """Run a campaign file in this process and return how it ended.

    Args:
        campaign_file: the campaign, YAML.
        state_directory: records and metadata stay here; None: the user's state folder.
        output_directory: where report.json and report.html go; None: ``reports/ID`` in the state folder.
        follow: is given the statuses as they come and returns the last.

    Raises CampaignError for a file that is not valid or names files that are not there, StorageError where
    the state folder cannot be used, MissingExtraError where the server or the agent is not installed,
    NotReadyError where this machine has not what a run needs: nobody else could ever take it. Failed runs are
    in the outcome.
    """
    state = Path(state_directory) if state_directory is not None else default_state_directory()
    _require_nameable(Path(campaign_file))
    refuse(check_campaign(campaign_file), str(campaign_file), here=True)
    check_free_space(state)
    require_usable(state)
    with ended_in_order(), LocalService(state) as service, Client(service.address) as client:
        campaign_id = client.submit(campaign_file)
        service.serve(campaign_id)
        service.refuse_what_cannot_begin(client)
        directory = Path(output_directory) if output_directory else state / "reports" / campaign_id
        try:
            return see_through(
                client,
                campaign_id,
                directory,
                lambda statuses: follow(service.while_it_can_go_on(client, statuses)),
                private=output_directory is None,
            )
        finally:
            service.raise_agent_error()


def require_usable(state: Path) -> None:
    """Make a state folder closed to others; raises StorageError where that is refused, it is another user's,
    or the locale cannot name it.
    """
    _require_nameable(state)
    try:
        take_state_folder(state)
    except OSError as error:
        raise StorageError(
            str(state), f"it cannot be used ({error.strerror})", "name another folder with --state"
        ) from error


def _require_nameable(path: Path) -> None:
    """Paths go to the server as UTF-8, and it must find by them what this process found."""
    name = str(path.absolute())
    try:
        same = utf8(name).encode(sys.getfilesystemencoding()) == os.fsencode(name)
    except UnicodeEncodeError:
        same = False
    if not same:
        raise StorageError(
            name,
            f"this locale ({sys.getfilesystemencoding()}) has not the characters of its name",
            "use one in UTF-8: LC_ALL=C.UTF-8",
        )


def check_free_space(state: Path) -> None:
    """Refuse to begin on a disk that is as good as full; raises StorageError.

    The agent would refuse to spool there, and the server could not even write down that it did.
    """
    existing = next(p for p in (state, *state.absolute().parents) if p.exists())
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes < LEAST_FREE_BYTES:
        raise StorageError(
            str(state),
            f"no space: the disk has {free_bytes:,} bytes left, and {LEAST_FREE_BYTES:,} must stay free",
            "free disk space, or name a folder on a larger disk with --state; nothing stored is lost",
        )


class LocalService:
    """A server and an agent in this process. As a context manager it starts both, and stops them in order.

    Args:
        state_directory: "server" and "agent" in it keep their state.
    """

    address: str

    def __init__(self, state_directory: Path) -> None:
        self._state = state_directory
        self._campaign_id: str | None = None
        self._agent: Agent | None = None
        self._agent_error: Exception | None = None
        self._resources = contextlib.ExitStack()

    def __enter__(self) -> LocalService:
        with contextlib.ExitStack() as resources:
            self.address = resources.enter_context(private_socket_address())
            resources.enter_context(_running_server(self._state, self.address))
            resources.enter_context(self._running_agent())
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._resources.close()

    def serve(self, campaign_id: str) -> None:
        """Remember what is waited for: an agent that breaks cancels it, so that nobody waits for ever."""
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
        stuck, reason = _stuck(status)
        if agent.registered and stuck:
            client.cancel(campaign_id)
            raise NotReadyError(
                f"campaign {campaign_id}",
                f"{stuck:,} of {status['runs_total']:,} runs can never begin here: {reason}",
                "correct the campaign's gpus, or run it where they are: a server takes it with assay submit, "
                "and an agent there measures; see assay doctor --for agent",
            )

    def while_it_can_go_on(
        self, client: Client, statuses: Iterable[Mapping[str, Any]]
    ) -> Iterator[Mapping[str, Any]]:
        """The statuses as they come; once nothing can go on (GPUs lost, a full disk), cancels the campaign.

        Raises NotReadyError then: no other agent will ever come.
        """
        for status in statuses:
            yield status
            if any(rest["failures"] < _RESTS_WAITED_FOR for rest in status["resting"]):
                continue  # a lock or counters that another program held for a moment
            left = status["runs_total"] - status["runs_done"] - status["runs_failed"]
            stuck, reason = _stuck(status)
            if stuck and stuck == left:
                client.cancel(status["campaign_id"])
                raise NotReadyError(
                    f"campaign {status['campaign_id']}",
                    f"{left:,} of {status['runs_total']:,} runs cannot go on here: {reason}",
                    f"the agent's state folder is {self._state / 'agent'} (assay-agent quarantine --state)",
                )

    def raise_agent_error(self) -> None:
        """Raise what the agent broke on, if it did."""
        if self._agent_error is not None:
            raise self._agent_error

    @contextlib.contextmanager
    def _running_agent(self) -> Iterator[None]:
        try:
            from assay_agent.config import AgentConfig  # noqa: PLC0415
            from assay_agent.daemon import Agent  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise _missing(error) from error
        # What is under way when the campaign has ended is not wanted any more: nothing to drain.
        config = AgentConfig(
            server=self.address, state_dir=self._state / "agent", name="local", drain_seconds=0.0
        )
        agent = self._agent = Agent(config)
        thread = threading.Thread(target=self._run_agent, args=(agent,), name="assay-agent", daemon=True)
        thread.start()
        try:
            yield
        finally:
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


def _stuck(status: Mapping[str, Any]) -> tuple[int, str]:
    """How many runs wait for what is not there, and what the first of them waits for."""
    waiting = status["waiting"]
    return sum(each["runs"] for each in waiting), waiting[0]["reason"] if waiting else ""


@contextlib.contextmanager
def _running_server(state: Path, address: str) -> Iterator[None]:
    try:
        from assay_server.app import Server, ServerConfig  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    config = ServerConfig(state_dir=state / "server", listen=(address,), heartbeat_ms=_HEARTBEAT_MS)
    with Server(config):
        yield


def _missing(error: ModuleNotFoundError, program: str = "assay run", extra: str = "all") -> MissingExtraError:
    return MissingExtraError(program, error.name or "", extra)


def plan_campaign(campaign_file: AnyPath, assumptions: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A dry run of a campaign file: runs, slices, passes, and what they would cost on assumptions.

    Args:
        campaign_file: the campaign, YAML.
        assumptions: names and values that replace the defaults of the forecast.

    "warnings" of it are what is doubtful: "file", "line", "field", "cause", "remedy" each.

    Raises CampaignError for a file that is not valid, ParameterError for an assumption that is not one,
    MissingExtraError where the server is not installed.
    """
    path = Path(campaign_file)
    text = read_campaign(path)
    try:
        from assay_server.campaigns.forecast import forecast_campaign  # noqa: PLC0415

        document = forecast_campaign(text, str(path), str(path.resolve().parent), assumptions or {})
    except ModuleNotFoundError as error:
        raise _missing(error, "assay plan", "server") from error
    found = check_campaign(path)
    refuse(found, str(path), here=False)
    return {**document, "warnings": [finding.to_dict(str(path)) for finding in found]}


def check_campaign(campaign_file: AnyPath) -> list[Finding]:
    """What is doubtful in a campaign file: GPUs that no agent has, files that are not on this machine.

    Raises CampaignError for a file that is not valid, MissingExtraError where the server is not installed.
    """
    path = Path(campaign_file)
    text = read_campaign(path)
    try:
        from assay_agent.virtual.architectures import ARCHITECTURES  # noqa: PLC0415
        from assay_server.campaigns.spec import load_campaign  # noqa: PLC0415
        from assay_server.campaigns.yaml_source import parse_yaml  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing(error, "assay plan", "server") from error
    campaign = load_campaign(text, str(path))
    document = parse_yaml(text.removeprefix("\ufeff"), str(path))
    around = Surroundings(document.line, path.resolve().parent, tuple(ARCHITECTURES), device_key)
    return look_at(campaign, around)


def campaign_schema() -> dict[str, Any]:
    """The JSON schema of campaign files, for editors; MissingExtraError where the server is not installed."""
    try:
        from assay_server.campaigns.schema import campaign_schema  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing(error, "assay init", "server") from error
    return campaign_schema()


def diagnose(need: str, state: Path | None = None, server: str | None = None) -> list[dict[str, str]]:
    """What ``assay doctor`` finds on this machine: "name", "state" (ok, missing, note), "found", "remedy".

    Raises ParameterError for a ``need`` that there is not, MissingExtraError where the agent is not
    installed.
    """
    try:
        from assay_agent.doctor import examine  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing(error, "assay doctor", "agent") from error
    return [check.to_dict() for check in examine(need, state, server)]


def nsight_compute_limits(compute_capability: str, tool_version: str = "") -> str:
    """Which releases of Nsight Compute measure a GPU, where that is limited, or that this may not; or ""."""
    from assay_agent.doctor_pins import architecture_of  # noqa: PLC0415 - needs nothing but the agent's table

    architecture = architecture_of(compute_capability)
    if architecture is None:
        return ""
    pin = architecture.pin("ncu")
    if tool_version and (pin.too_new(tool_version) or pin.too_old(tool_version)):
        doubt = f"Nsight Compute {tool_version} may not measure {architecture.name}"
        return f"{doubt}: {pin.remedy(tool_version)}"
    if pin.last:
        return f"Nsight Compute measures {architecture.name} up to release {pin.last} ({pin.source})"
    return ""


def markdown_report_files(report: Mapping[str, Any]) -> dict[str, str]:
    """The same with its pictures: texts by path, ``report.md`` and SVG files in a folder beside it."""
    try:
        from assay_server.report.markdown import markdown_files  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing(error, "assay report --format markdown", "server") from error
    return markdown_files(report)


def markdown_report(report: Mapping[str, Any]) -> str:
    """A report document as Markdown tables; MissingExtraError where the server is not installed."""
    try:
        from assay_server.report.markdown import render_markdown  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing(error, "assay report --format markdown", "server") from error
    return render_markdown(report)
