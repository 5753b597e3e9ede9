"""What runs in this process without a server of its own: run a campaign, plan one, examine the box.

Only this module, ``local_service`` and ``local_box`` import server and agent, and only when they are used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay_client.ending import ended_in_order
from assay_client.files import AnyPath, read_campaign
from assay_client.local_box import basis_of, missing_extra
from assay_client.local_service import LocalService
from assay_client.one_box.unfinished import Notes, Say, Source, begin
from assay_client.places import default_state_directory
from assay_client.remote.addresses import server_address, utf8
from assay_client.remote.client import Client
from assay_client.remote.outcome import Follow, Outcome, Status, last_of, see_through
from assay_client.settings import settings_of
from assay_core.files.free_space import DEFAULT_FLOOR_BYTES, require_free_space
from assay_core.files.private_folders import require_no_path_separator, take_state_folder
from assay_core.server_address import parse_address
from assay_sampling.errors import ParameterError, StorageError
from assay_sampling.notes.registry import Note, make_note

if TYPE_CHECKING:
    from assay_agent.doctor.pins import Pin
    from assay_report.model.report import Report
    from assay_server.campaign_file.lint import Findings
    from assay_server.campaign_file.reading import CampaignFile

Unfinished = Literal["cancel", "go_on", "new"]


OnLight = Callable[[Status, Mapping[str, Any]], None]


def _silent(_text: str) -> None:
    pass


def _ignored(_status: Status, _light: Mapping[str, Any]) -> None:
    pass


def run_campaign(
    campaign_file: AnyPath,
    state_directory: AnyPath | None = None,
    *,
    output_directory: AnyPath | None = None,
    virtual_gpus: Sequence[str] = (),
    follow: Follow = last_of,
    unfinished: Unfinished = "cancel",
    say: Say = _silent,
) -> Outcome:
    """Run a campaign file in this process and return how it ended.

    Args:
        campaign_file: the campaign, YAML.
        state_directory: the folder for records and metadata; None: the user's state folder.
        output_directory: the folder for report.json and report.html; None: ``reports/ID`` in the state's.
        virtual_gpus: the virtual GPUs that this machine offers beside its own, KIND or KIND:COUNT each.
        follow: gets the statuses as they come and returns the last.
        unfinished: "cancel" cancels the campaign if this process is interrupted; "go_on" leaves it to the
            next run of this file in this state folder, and goes on with what an earlier run left; "new"
            cancels what an earlier run left and begins again.
        say: gets a sentence about an earlier run of this file.

    Raises CampaignError for a file that is not valid or names missing files, StorageError if the state folder
    cannot be used, MissingExtraError if the server or the agent is not installed, NotReadyError if this
    machine lacks what a run needs: no other machine could take it; ParameterError for a kind of virtual GPU
    that does not exist. Failed runs are in the outcome.
    """
    return run_source(
        file_source(campaign_file),
        state_directory,
        output_directory=output_directory,
        virtual_gpus=virtual_gpus,
        follow=follow,
        unfinished=unfinished,
        say=say,
    )


def file_source(campaign_file: AnyPath) -> Source:
    """A campaign file as what is run; raises CampaignError if it cannot be read, StorageError."""
    path = Path(campaign_file)
    _require_nameable(path)
    return Source(read_campaign(path), path, str(path.resolve()))


def run_source(
    source: Source,
    state_directory: AnyPath | None = None,
    *,
    output_directory: AnyPath | None = None,
    virtual_gpus: Sequence[str] = (),
    follow: Follow = last_of,
    unfinished: Unfinished = "cancel",
    say: Say = _silent,
    on_light: OnLight = _ignored,
) -> Outcome:
    """Run a campaign whose text is at hand; else as :func:`run_campaign`.

    ``on_light`` gets, once, the status of the campaign and the detail of its first light run that is done.
    """
    state = Path(state_directory) if state_directory is not None else default_state_directory()
    file, folder = _parsed(source.text, source.path)
    _doubts(file, folder).refuse(here=True)
    check_free_space(state)
    require_usable(state)
    basis = basis_of(source.text, file, folder, virtual_gpus)
    with (
        ended_in_order(),
        LocalService(state, virtual_gpus, begins=False) as service,
        Client(service.address) as client,
    ):
        notes = Notes(state / "unfinished") if unfinished != "cancel" else None
        note = None
        if notes is None:
            campaign_id = str(client.submit_text(source.text, source.path)["campaign_id"])
        else:
            note = begin(client, notes, source, basis, anew=unfinished == "new", say=say)
            campaign_id = note.campaign_id
        service.begin()
        service.serve(campaign_id)
        service.refuse_what_cannot_begin(client)
        directory = Path(output_directory) if output_directory else state / "reports" / campaign_id
        try:
            outcome = see_through(
                client,
                campaign_id,
                directory,
                lambda statuses: follow(
                    _telling_light(client, service.while_it_can_go_on(client, statuses), on_light)
                ),
                cancel_when_interrupted=note is None,
                private=output_directory is None,
            )
        except (KeyboardInterrupt, SystemExit):
            if note is not None:
                say(f"{campaign_id} is interrupted: run the same command again to continue")
            raise
        finally:
            service.raise_agent_error()
        if notes is not None and note is not None:
            notes.keep(replace(note, ended=True))
        return outcome


def _telling_light(client: Client, statuses: Iterable[Status], on_light: OnLight) -> Iterator[Status]:
    """The statuses, and to ``on_light`` the first light run when it is done."""
    waiting = on_light is not _ignored
    for status in statuses:
        if waiting and status["runs_done"]:
            whole = client.status(status["campaign_id"])
            light = [run for run in whole["runs"] if run["level"] == "light" and run["state"] == "done"]
            if light:
                waiting = False
                on_light(whole, client.run(light[0]["run_id"]))
        yield status


def require_usable(state: Path) -> None:
    """Make a state folder closed to others; raises StorageError if the disk refuses, if it belongs to another
    user, if the locale cannot name it, or if its path has a colon.
    """
    _require_nameable(state)
    require_no_path_separator(state, str(state))
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
            f"this locale ({sys.getfilesystemencoding()}) lacks characters of its name",
            "use one in UTF-8: LC_ALL=C.UTF-8",
        )


def check_free_space(state: Path) -> None:
    """Raise StorageError if the disk is nearly full.

    The agent would refuse to spool there, and the server could not even record that.
    """
    remedy = "free disk space, or name a folder on a larger disk with --state; nothing stored is lost"
    require_free_space(str(state), state, DEFAULT_FLOOR_BYTES, remedy)


def plan_campaign(campaign_file: AnyPath, assumptions: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A dry run of a campaign file: runs, slices, passes, and what they would cost on assumptions.

    Args:
        campaign_file: the campaign, YAML.
        assumptions: names and values that replace the defaults of the forecast.

    Its "warnings" have "file", "line", "field", "cause" and "remedy" each.

    Raises CampaignError for a file that is not valid, ParameterError for an assumption that is unknown or has
    an invalid value, MissingExtraError if the server is not installed.
    """
    file, folder = _read_campaign(campaign_file)
    try:
        from assay_server.campaigns.planning.forecast import forecast_campaign  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra(error, "assay plan", "server") from error
    document = forecast_campaign(file, str(folder), assumptions or {})
    findings = _doubts(file, folder)
    findings.refuse(here=False)
    return {**document, "warnings": findings.to_documents()}


def check_campaign(campaign_file: AnyPath) -> Findings:
    """Warnings about a campaign file: unknown GPUs, files that are not on this machine.

    Raises CampaignError for a file that is not valid, MissingExtraError if the server is not installed.
    """
    return _doubts(*_read_campaign(campaign_file))


def _read_campaign(campaign_file: AnyPath) -> tuple[CampaignFile, Path]:
    """A campaign file, read once, and its folder; raises like check_campaign."""
    path = Path(campaign_file)
    return _parsed(read_campaign(path), path)


def _parsed(text: str, path: Path) -> tuple[CampaignFile, Path]:
    """A campaign from its text, and the folder of its path; raises like check_campaign."""
    try:
        from assay_server.campaign_file.reading import read_campaign_file  # noqa: PLC0415

        # The reader of YAML is loaded by the first file that is read.
        return read_campaign_file(text, str(path)), path.resolve().parent
    except ModuleNotFoundError as error:
        raise missing_extra(error, "assay plan", "server") from error


def _doubts(file: CampaignFile, folder: Path) -> Findings:
    try:
        from assay_server.campaign_file.lint import look_at  # noqa: PLC0415
        from assay_virtual.architectures import ARCHITECTURES  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra(error, "assay plan", "server") from error
    return look_at(file, folder, tuple(ARCHITECTURES))


def report_of_state(state: Path, campaign_id: str | None = None) -> Report:
    """The report of a campaign in a state folder of ``assay run`` or ``demo``, without a server.

    A campaign that has not ended, or was cancelled, has a report of what is there. None: the only campaign.
    Raises StorageError, CampaignError, MissingExtraError if the server is not installed.
    """
    try:
        from assay_server.maintenance.stored_report import stored_report  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra(error, "assay report --state", "server") from error
    return stored_report(state, campaign_id)


def campaign_schema() -> dict[str, Any]:
    """The JSON schema of campaign files, for editors; raises MissingExtraError without the server extra."""
    try:
        from assay_server.campaign_file.spec import campaign_schema  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra(error, "assay init", "server") from error
    return campaign_schema()


def diagnose(need: str, state: Path | None = None, server: str | None = None) -> list[dict[str, str]]:
    """What ``assay doctor`` finds on this machine: "name", "state" (ok, missing, note), "found", "remedy".

    Raises ParameterError for an unknown ``need``, MissingExtraError if the agent is not installed.
    """
    try:
        from assay_agent.doctor.examination import examine  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra(error, "assay doctor", "agent") from error
    from assay_client.remote.logins import login_folder  # noqa: PLC0415 - certificates take long to load

    address = parse_address(server_address(server), "--server")
    credentials = login_folder(address).read() if address.socket is None else None
    owner = settings_of(socket_owner=None).socket_owner
    return [check.to_dict() for check in examine(need, state, address.text, credentials, owner)]


def first_nsight_compute(compute_capability: str) -> str:
    """The first release of Nsight Compute that measures a GPU; "": unknown, or too old to matter."""
    pin = _nsight_compute_pin(compute_capability)
    return pin[1].first if pin is not None else ""


def nsight_compute_limits(compute_capability: str, tool_version: str = "") -> Note | None:
    """A note if newer releases of Nsight Compute do not measure a GPU, else None.

    Raises ParameterError if the release of ``tool_version`` does not.
    """
    entry = _nsight_compute_pin(compute_capability)
    if entry is None:
        return None
    architecture, pin = entry
    if tool_version and (pin.too_new(tool_version) or pin.too_old(tool_version)):
        raise ParameterError(
            "--tool-version",
            f"Nsight Compute {tool_version} does not measure {architecture} GPUs",
            pin.remedy(tool_version),
        )
    if not pin.last:
        return None
    return make_note("last_release_for_gpu", architecture=architecture, last=pin.last, source=pin.source)


def _nsight_compute_pin(compute_capability: str) -> tuple[str, Pin] | None:
    """The architecture of a GPU and the releases that measure it; None for an unknown one."""
    from assay_agent.doctor.pins import architecture_of  # noqa: PLC0415 - needs nothing but the agent's table

    architecture = architecture_of(compute_capability)
    return None if architecture is None else (architecture.name, architecture.pin("ncu"))
