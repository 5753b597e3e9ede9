"""``assay report ID``: the report of a campaign, on the terminal or as files."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import typer

from assay_client.cli import completing
from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import console, write_json
from assay_client.cli.reporters.report import render_report
from assay_client.cli.reporters.warnings import render_changed_records
from assay_client.cli.verb import verb_app
from assay_client.files import write_atomically
from assay_client.local import report_of_state
from assay_client.places import likely_state_directory
from assay_client.remote.client import Client
from assay_report.forms import Form, file_name, files_of, single
from assay_report.html import render_html
from assay_report.model.report import Report
from assay_sampling.errors import ParameterError, ServerUnreachableError

app = verb_app()


class ReportFormat(StrEnum):
    """The formats of a report: its forms as files, and text as on the terminal."""

    JSON = "json"
    HTML = "html"
    MARKDOWN = "markdown"
    LATEX = "latex"
    CSV = "csv"
    PARQUET = "parquet"
    TEXT = "text"


SHORT = {"md": "markdown", "tex": "latex"}


def report_format(text: str) -> ReportFormat:
    """The format of a name; ``md`` and ``tex`` are short. Raises ParameterError for an unknown name."""
    try:
        return ReportFormat(SHORT.get(text, text))
    except ValueError:
        formats = ", ".join(ReportFormat)
        raise ParameterError("--format", f"there is no format {text!r}", f"use {formats}") from None


@app.command()
def report(
    campaign_id: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="A campaign's id, such as demo-1; optional if --state has only one.",
            autocompletion=completing.campaigns,
            show_default=False,
        ),
    ] = None,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            readable=False,
            metavar="DIR",
            help="Write the report's files into this folder; a missing one is created.",
        ),
    ] = None,
    form_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="json|html|markdown|latex|csv|parquet|text",
            help="Default: text on the terminal, json and html with -o; md and tex are short.",
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            readable=False,
            metavar="DIR",
            help="Read the state folder of assay run, import or demo; no server is needed.",
        ),
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            "--beside",
            readable=False,
            metavar="FILE",
            help="A CSV of published results to show next to ours.",
        ),
    ] = None,
    simulated: Annotated[
        list[Path] | None,
        typer.Option(
            "--simulated",
            readable=False,
            metavar="FILE",
            help="A document of assay import accel-sim or pka-table.",
        ),
    ] = None,
    interactive: Annotated[
        bool,
        typer.Option(
            "--interactive", help="For HTML: a button that makes each figure interactive (adds 0.9 MB)."
        ),
    ] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show or write the report of a campaign.

    A running or cancelled campaign gives a partial report. With --state no server is needed.
    """
    form = None if form_name is None else report_format(form_name)
    if as_json and output is None and form not in (None, ReportFormat.JSON):
        raise ParameterError("--json", f"the {form} report is not JSON", "write it to a folder with -o DIR")
    if form is ReportFormat.PARQUET and output is None:
        raise ParameterError("--format", "parquet is not for a terminal", "write it to a folder with -o DIR")
    if interactive and form not in (None, ReportFormat.HTML):
        raise ParameterError("--interactive", f"the {form} report has no buttons", "give --format html")
    with _source(campaign_id, state, server) as source:
        _set_beside(source, beside or (), simulated or ())
        report_source = _Interactive(source) if interactive else source
        if output is not None:
            _write(report_source, output, form, as_json)
        elif as_json or form is ReportFormat.JSON:
            write_json(json.loads(report_source.data("json")))  # as the server wrote it
        elif form in (None, ReportFormat.TEXT):
            render_report(report_source.report(), console())
        else:
            sys.stdout.write(_single(report_source, form).decode("utf-8"))
        render_changed_records(report_source.changed, console(error=True))


class _Source(Protocol):
    """Where a report comes from; ``changed``: records that have changed since it was made."""

    campaign_id: str

    @property
    def changed(self) -> list[dict[str, Any]]: ...

    def report(self) -> Report: ...

    def data(self, form: Literal["json", "html"]) -> bytes: ...


class _Fetched:
    """The report of a campaign as a server has it."""

    def __init__(self, client: Client, campaign_id: str) -> None:
        self.campaign_id = campaign_id
        self.changed: list[dict[str, Any]] = []
        self._client = client
        self._report: Report | None = None

    def report(self) -> Report:
        if self._report is None:
            self._report = self._client.report(self.campaign_id, on_changed=self._hear)
        return self._report

    def data(self, form: Literal["json", "html"]) -> bytes:
        report = self._report
        if report is not None and (report.published or report.simulated):
            return single(report, Form(form))
        return self._client.report_bytes(self.campaign_id, form, on_changed=self._hear)

    def _hear(self, changed: list[dict[str, Any]]) -> None:
        self.changed = changed


class _LocalReport:
    """A report that was read on this machine."""

    def __init__(self, report: Report) -> None:
        self.campaign_id = report.campaign.id
        self.changed: list[dict[str, Any]] = []
        self._report = report

    def report(self) -> Report:
        return self._report

    def data(self, form: Literal["json", "html"]) -> bytes:
        return single(self._report, Form(form))


class _Interactive:
    """A report whose page has a button at each figure."""

    def __init__(self, source: _Source) -> None:
        self.campaign_id = source.campaign_id
        self._source = source

    @property
    def changed(self) -> list[dict[str, Any]]:
        return self._source.changed

    def report(self) -> Report:
        return self._source.report()

    def data(self, form: Literal["json", "html"]) -> bytes:
        if form == "json":
            return self._source.data(form)
        return render_html(self.report(), with_scripts=True).encode()


@contextlib.contextmanager
def _source(campaign_id: str | None, state: Path | None, server: str | None) -> Iterator[_Source]:
    if state is not None:
        if server is not None:
            raise ParameterError("--state", "a report is read there or from a server", "leave out --server")
        yield _LocalReport(report_of_state(state, campaign_id))
        return
    if campaign_id is None:
        raise ParameterError(
            "ID", "no campaign was named", "assay lab status lists them; or give --state DIR"
        )
    with _of_server(campaign_id), Client(server) as client:
        yield _Fetched(client, campaign_id)


def _set_beside(source: _Source, beside: Sequence[Path], simulated: Sequence[Path]) -> None:
    """Read the tables that the reader sets beside the report, and put them into it."""
    if not (beside or simulated):
        return
    from assay_report.external_results import read_published, read_simulated, set_beside  # noqa: PLC0415 - rare

    set_beside(
        source.report(),
        [entry for path in beside for entry in read_published(path)],
        [entry for path in simulated for entry in read_simulated(path)],
    )


@contextlib.contextmanager
def _of_server(campaign_id: str) -> Iterator[None]:
    """If no server answers, name the report that ``assay run`` left on this machine, if there is one."""
    try:
        yield
    except ServerUnreachableError as error:
        state = likely_state_directory()
        page = state / "reports" / campaign_id / "report.html"
        if page.is_file():
            remedy = (
                f"the report of 'assay run' needs no server: {page}, or assay report {campaign_id} --state "
                f"{state}; for a server's, {error.remedy}"
            )
            raise ServerUnreachableError(error.subject, error.cause, remedy) from error
        raise


def _write(source: _Source, output: Path, form: ReportFormat | None, as_json: bool) -> None:
    forms = [form] if form is not None else [ReportFormat.JSON, ReportFormat.HTML]
    files: dict[str, Any] = {}
    for each in forms:
        name, contents = _files(source, each)
        files[each.value] = output / name
        # What a file refers to is written first: a report that is there is whole.
        for path, data in reversed(list(contents.items())):
            write_atomically(output / path, data)
    if as_json:
        changed = {"changed_records": source.changed} if source.changed else {}
        write_json({"campaign_id": source.campaign_id, "files": files, **changed})
    else:
        for path in files.values():
            console().print(f"written to {path}", soft_wrap=True)


def _files(source: _Source, form: ReportFormat) -> tuple[str, Mapping[str, bytes]]:
    """The file or folder that the form is, and the contents of its files."""
    if form is ReportFormat.TEXT:
        return "report.txt", {"report.txt": _text(source)}
    name = file_name(Form(form))
    if form in (ReportFormat.JSON, ReportFormat.HTML):
        return name, {name: _single(source, form)}
    return name, files_of(source.report(), Form(form))


def _single(source: _Source, form: ReportFormat) -> bytes:
    if form is ReportFormat.JSON:
        return source.data("json")
    return source.data("html") if form is ReportFormat.HTML else single(source.report(), Form(form))


def _text(source: _Source) -> bytes:
    drawn = console()
    with drawn.capture() as captured:
        render_report(source.report(), drawn)
    return captured.get().encode()
