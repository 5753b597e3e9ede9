"""``assay report ID``: the report of a campaign, on the terminal or as files."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from assay_client.cli.options import CampaignArgument, JsonOption, ServerOption
from assay_client.cli.output import console, write_json
from assay_client.cli.reporters.report import render_report
from assay_client.cli.reporters.warnings import render_changed_records
from assay_client.cli.verb import verb_app
from assay_client.files import write_atomically
from assay_client.places import likely_state_directory
from assay_client.remote.client import Client
from assay_report.markdown import markdown_files, render_markdown
from assay_report.model.report import Report
from assay_sampling.errors import ParameterError, ServerUnreachableError

app = verb_app()


class ReportFormat(StrEnum):
    """The formats of a report."""

    JSON = "json"
    HTML = "html"
    MARKDOWN = "markdown"
    TEXT = "text"


SUFFIXES = {ReportFormat.MARKDOWN: "md", ReportFormat.TEXT: "txt"}


def report_format(text: str) -> ReportFormat:
    """The format of a name; ``md`` is short for markdown. Raises ParameterError for an unknown name."""
    try:
        return ReportFormat("markdown" if text == "md" else text)
    except ValueError:
        known = ", ".join(ReportFormat)
        raise ParameterError("--format", f"there is no format {text!r}", f"use {known}") from None


@app.command()
def report(
    campaign_id: CampaignArgument,
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
            metavar="json|html|markdown|text",
            help="Default: text on the terminal, json and html with -o; md is short for markdown.",
            show_default=False,
        ),
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show or write the report of an ended campaign."""
    form = None if form_name is None else report_format(form_name)
    if as_json and output is None and form not in (None, ReportFormat.JSON):
        raise ParameterError("--json", f"the {form} report is not JSON", "write it to a folder with -o DIR")
    with _of_server(campaign_id), Client(server) as client:
        fetched = _Fetched(client, campaign_id)
        if output is not None:
            _write(fetched, output, form, as_json)
        elif form in (ReportFormat.HTML, ReportFormat.MARKDOWN):
            sys.stdout.write(_content(fetched, form).decode("utf-8"))
        elif as_json or form is ReportFormat.JSON:
            write_json(json.loads(fetched.data("json")))  # as the server wrote it
        else:
            render_report(fetched.report(), console())
        render_changed_records(fetched.changed, console(error=True))


class _Fetched:
    """The report of a campaign in its formats, and the records that the server reports as changed."""

    def __init__(self, client: Client, campaign_id: str) -> None:
        self.campaign_id = campaign_id
        self.changed: list[dict[str, Any]] = []
        self._client = client

    def report(self) -> Report:
        return self._client.report(self.campaign_id, on_changed=self._hear)

    def data(self, form: Literal["json", "html"]) -> bytes:
        return self._client.report_bytes(self.campaign_id, form, on_changed=self._hear)

    def _hear(self, changed: list[dict[str, Any]]) -> None:
        self.changed = changed


@contextlib.contextmanager
def _of_server(campaign_id: str) -> Iterator[None]:
    """If no server answers, name the report that ``assay run`` left on this machine, if there is one."""
    try:
        yield
    except ServerUnreachableError as error:
        page = likely_state_directory() / "reports" / campaign_id / "report.html"
        if page.is_file():
            told = f"the report of 'assay run' needs no server: {page}; for a server's, {error.remedy}"
            raise ServerUnreachableError(error.subject, error.cause, told) from error
        raise


def _write(fetched: _Fetched, output: Path, form: ReportFormat | None, as_json: bool) -> None:
    forms = [form] if form is not None else [ReportFormat.JSON, ReportFormat.HTML]
    files: dict[str, Any] = {}
    for each in forms:
        files[each.value] = output / f"report.{SUFFIXES.get(each, each.value)}"
        if each is ReportFormat.MARKDOWN:
            # The pictures first: the text that refers to them is there only when they are.
            texts = markdown_files(fetched.report())
            for path, text in reversed(texts.items()):
                write_atomically(output / path, text)
        else:
            write_atomically(files[each.value], _content(fetched, each))
    if as_json:
        changed = {"changed_records": fetched.changed} if fetched.changed else {}
        write_json({"campaign_id": fetched.campaign_id, "files": files, **changed})
    else:
        for path in files.values():
            console().print(f"written to {path}", soft_wrap=True)


def _content(fetched: _Fetched, form: ReportFormat) -> bytes:
    if form is ReportFormat.TEXT:
        drawn = console()
        with drawn.capture() as captured:
            render_report(fetched.report(), drawn)
        return captured.get().encode()
    if form is ReportFormat.MARKDOWN:
        return render_markdown(fetched.report()).encode()
    return fetched.data("json" if form is ReportFormat.JSON else "html")
