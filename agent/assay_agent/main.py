"""The command line of the agent: ``assay-agent run``, and verbs that look at its box and its rules."""

from __future__ import annotations

import json
import logging
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from assay_agent.config import AgentConfig, VirtualGPUs
from assay_agent.config_file import CONFIG_OPTION
from assay_agent.daemon import Agent
from assay_agent.doctor import examine, require_nothing_missing
from assay_agent.inventory import Inventory, read_inventory
from assay_agent.policy_command import POLICY_OPTION, SERVER_OPTION, policy_app, policy_in_force
from assay_agent.probe import describe_probe, probe_box
from assay_agent.quarantine_command import STATE_HELP, quarantine_app
from assay_agent.state import StateDirectory
from assay_agent.telemetry.settings import TelemetrySettings
from assay_sampling.errors import AssayError
from assay_sampling.server_address import default_address

_log = logging.getLogger(__name__)

_ENDED = b"\0"  # the number of no signal

app = typer.Typer(
    help="The agent of a GPU box: takes runs from an assay-server, measures, and streams launches.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

app.add_typer(policy_app, name="policy")
app.add_typer(quarantine_app, name="quarantine")


@app.command()
def run(  # noqa: PLR0917 - a command line: every parameter is an option
    server: Annotated[str | None, SERVER_OPTION] = None,
    state: Annotated[Path, typer.Option(envvar="ASSAY_AGENT_STATE", help=STATE_HELP)] = Path(
        "assay-agent-state"
    ),
    name: Annotated[
        str, typer.Option(envvar="ASSAY_AGENT_NAME", help="What people call this agent; default: the host.")
    ] = "",
    agent_id: Annotated[
        str,
        typer.Option(help="Identity in a new state directory, 32 hexadecimal digits; default: random."),
    ] = "",
    recorded_slots: Annotated[
        int,
        typer.Option(
            envvar="ASSAY_AGENT_RECORDED_SLOTS", min=0, max=1024, help="Recordings played at a time."
        ),
    ] = 1,
    virtual: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND[:COUNT]",
            help="Offer virtual GPUs (V100, 'RTX 2060:2'); all they measure is synthetic. Repeatable.",
        ),
    ] = None,
    spool_limit: Annotated[
        int | None,
        typer.Option(
            envvar="ASSAY_AGENT_SPOOL_LIMIT",
            min=1,
            help="Bytes spooled at most; default: a quarter of the free disk, at most 4 GiB.",
        ),
    ] = None,
    minimum_free: Annotated[
        int, typer.Option(envvar="ASSAY_AGENT_MINIMUM_FREE", min=0, help="Bytes of the disk left free.")
    ] = 256 << 20,
    drain: Annotated[
        float,
        typer.Option(envvar="ASSAY_AGENT_DRAIN", min=0, help="Seconds a run may go on after SIGTERM."),
    ] = 5.0,
    pause_at_celsius: Annotated[
        float,
        typer.Option(
            envvar="ASSAY_AGENT_PAUSE_AT", min=0, help="A GPU that hot waits before a run; 0: never."
        ),
    ] = 85.0,
    resume_below_celsius: Annotated[
        float, typer.Option(envvar="ASSAY_AGENT_RESUME_BELOW", min=0, help="It begins below this, in °C.")
    ] = 75.0,
    longest_cooling: Annotated[
        float,
        typer.Option(envvar="ASSAY_AGENT_LONGEST_COOLING", min=0, help="Seconds a hot GPU waits at most."),
    ] = 180.0,
    policy: Annotated[Path | None, POLICY_OPTION] = None,
    config: Annotated[Path | None, CONFIG_OPTION] = None,  # its callback reads it
    log_level: Annotated[
        str, typer.Option(envvar="ASSAY_LOG_LEVEL", help="debug, info, warning, error.")
    ] = "info",
) -> None:
    """Work for a server until SIGTERM or SIGINT; a second one hands runs back at once."""
    _set_up_logging(log_level)
    settings = AgentConfig(
        server=server or default_address(),
        state_dir=state,
        name=name or socket.gethostname(),
        agent_id=agent_id,
        recorded_slots=recorded_slots,
        virtual=tuple(VirtualGPUs.parse(text) for text in virtual or ()),
        spool_limit_bytes=spool_limit,
        minimum_free_bytes=minimum_free,
        drain_seconds=drain,
        telemetry=TelemetrySettings(
            pause_at_celsius=pause_at_celsius,
            resume_below_celsius=resume_below_celsius,
            longest_wait_seconds=longest_cooling,
            minimum_free_bytes=minimum_free,
        ),
        policy_file=policy_in_force(policy),
    )
    _run_until_signalled(Agent(settings))


@app.command()
def new_identity(
    *,
    state: Annotated[Path, typer.Option(envvar="ASSAY_AGENT_STATE", help=STATE_HELP)] = Path(
        "assay-agent-state"
    ),
    config: Annotated[Path | None, CONFIG_OPTION] = None,  # its callback reads it
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Give the state folder of a cloned box an identity of its own; its agent must not run."""
    with StateDirectory(state) as folder:
        before, now = folder.agent_id, folder.renew_identity()
    document = {"state": str(state), "agent_id_before": before, "agent_id": now}
    typer.echo(json.dumps(document, indent=2) if as_json else f"{state}: agent {now} (was {before})")


@app.command()
def inventory(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say what this box has: processors, memory, GPUs, or why it has no GPU."""
    found = read_inventory()
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else _described(found))


@app.command()
def probe(
    *,
    state: Annotated[Path, typer.Option(envvar="ASSAY_AGENT_STATE", help=STATE_HELP)] = Path(
        "assay-agent-state"
    ),
    virtual: Annotated[
        list[str] | None, typer.Option(metavar="KIND[:COUNT]", help="As in 'run'. Repeatable.")
    ] = None,
    policy: Annotated[Path | None, POLICY_OPTION] = None,
    config: Annotated[Path | None, CONFIG_OPTION] = None,  # its callback reads it
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say what an agent on this box would offer: GPUs, profilers, conditions, and what may run."""
    groups = [VirtualGPUs.parse(text) for text in virtual or ()]
    found = probe_box(state, groups, policy_in_force(policy))
    typer.echo(json.dumps(found, indent=2) if as_json else describe_probe(found))


@app.command()
def doctor(
    *,
    need: Annotated[
        str, typer.Option("--for", metavar="client|agent|server|all", help="Whose needs count.")
    ] = "agent",
    state: Annotated[
        Path, typer.Option(envvar="ASSAY_AGENT_STATE", help="The folder that will hold the state.")
    ] = Path("assay-agent-state"),
    server: Annotated[str | None, SERVER_OPTION] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say what is missing on this box, each with a remedy; exit code 10 where something needed is."""
    checks = examine(need, state, server)
    if as_json:
        missing = [check.name for check in checks if check.state == "missing"]
        listed = [check.to_dict() for check in checks]
        document = {"for": need, "ready": not missing, "missing": missing, "checks": listed}
        typer.echo(json.dumps(document, indent=2))
    else:
        for check in checks:
            typer.echo(f"{check.state:<8}{check.name}: {check.found}")
            if check.remedy:
                typer.echo(f"{'':<8}{check.remedy}")
    require_nothing_missing(checks, need)


def _described(found: Inventory) -> str:
    lines = [
        f"host    {found.host}",
        f"cpus    {found.cpu_count}",
        f"memory  {found.memory_bytes / 2**30:.1f} GiB",
        f"driver  {found.driver_version or '-'} (CUDA {found.cuda_driver_version or '-'})",
    ]
    for device in found.devices:
        what = device.problem or (
            f"{device.name}, compute capability {device.compute_capability}, {device.sm_count or '?'} SMs, "
            f"{device.memory_bytes / 2**30:.1f} GiB, {device.uuid}"
            f"{'; takes no runs: ' + device.left_out if device.left_out else ''}"
        )
        lines.append(f"GPU {device.index}   {what}")
    if found.no_device_reason:
        lines.append(f"no GPU  {found.no_device_reason}")
    return "\n".join(lines)


def _set_up_logging(level: str) -> None:
    names = logging.getLevelNamesMapping()
    if level.upper() not in names:
        raise typer.BadParameter(
            f"{level!r} is none of debug, info, warning, error", param_hint="--log-level"
        )
    logging.basicConfig(
        stream=sys.stderr,
        level=names[level.upper()],
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def _run_until_signalled(agent: Agent) -> None:
    """Run the agent in a thread of its own, so that a signal never finds one of its locks held."""
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
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, frame: None)
        thread = threading.Thread(target=work, name="assay-agent", daemon=True)
        thread.start()
        again = False
        while (received := waiting.recv(1)) != _ENDED:
            _log.info("%s: stopping", signal.Signals(received[0]).name)
            agent.stop(at_once=again)
            again = True
        thread.join()
        signal.set_wakeup_fd(-1)
    if problems:
        raise problems[0]


def main() -> None:
    """Entry point: typed errors become one paragraph on standard error and an exit code."""
    try:
        app()
    except AssayError as error:
        typer.echo(f"assay-agent: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
