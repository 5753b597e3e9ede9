"""Downloads: reports in each form, and published records, of which a browser may ask for parts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from assay_core.records.archive import RecordsAsked
from assay_core.records.campaign import ReportFormat, ReportRequest
from assay_report.forms import Form
from assay_sampling.errors import ParameterError
from assay_server.web.auth.guarding import FIGURE_POLICY, REPORT_POLICY
from assay_server.web.routes.context import WebContext, number
from assay_server.web.views import pages as kinds
from assay_server.web.views.region import Drawing

REPORT_CALL = "assay.v1.CampaignService/GetReport"
# Forms of a report that are made when somebody asks for them, by the ending of their file.
_MADE: Mapping[str, tuple[Form, str]] = MappingProxyType(
    {
        "md": (Form.MARKDOWN, "text/markdown"),
        "tex": (Form.LATEX, "application/x-tex"),
        "csv": (Form.CSV, "text/csv"),
        "parquet": (Form.PARQUET, "application/vnd.apache.parquet"),
    }
)


async def report(context: WebContext, request: Request) -> Response:
    """The report in the form that the path names."""
    caller, campaign_id = await context.caller(request), request.path_params["campaign_id"]
    form = request.path_params["form"]
    made, name = _MADE.get(form), f"{campaign_id}.{form}"
    if made is None and form not in tuple(ReportFormat):
        every = ", ".join((*ReportFormat, *_MADE))
        raise ParameterError("report", f"there is no form {form[:20]!r}", f"take {every}")
    if form == "parquet":
        stored = partial(context.campaign.report_rows, campaign_id)
        rows = await context.call(REPORT_CALL, caller, stored, campaign_id=campaign_id)
        if rows is not None:
            return FileResponse(rows, media_type=_MADE[form][1], filename=name)
    stored_form = ReportFormat.JSON if made is not None else ReportFormat(form)
    find = partial(context.campaign.report, ReportRequest(campaign_id, stored_form))
    document = await context.call(REPORT_CALL, caller, find, campaign_id=campaign_id)
    attached = {"Content-Disposition": f'attachment; filename="{name}"'}
    if made is not None:
        data = await context.conversions.form(document, made[0])
        return Response(data, media_type=made[1], headers=attached)
    if form == ReportFormat.HTML:  # it is shown
        policy = {"Content-Security-Policy": REPORT_POLICY}
        if isinstance(document, Path):
            return FileResponse(document, media_type="text/html", headers=policy)
        return Response(document, media_type="text/html", headers=policy)
    if isinstance(document, Path):  # of which a browser may ask for a part (RFC 9110, 14)
        return FileResponse(document, media_type="application/json", filename=name)
    return Response(document, media_type="application/json", headers=attached)


async def figure(context: WebContext, request: Request) -> Response:
    """A figure of the campaign's report, or of what there is so far, as SVG."""
    caller, campaign_id = await context.caller(request), request.path_params["campaign_id"]
    find = partial(context.campaign.figure_source, campaign_id)
    source = await context.call(REPORT_CALL, caller, find, campaign_id=campaign_id)
    narrow = "narrow" in request.query_params
    drawn = await context.studio.picture(source, request.path_params["figure"], narrow=narrow)
    return Response(drawn, media_type="image/svg+xml", headers={"Content-Security-Policy": FIGURE_POLICY})


async def records(context: WebContext, request: Request) -> Response:
    """The page that lists a campaign's published files."""
    caller, campaign_id = await context.caller(request), request.path_params["campaign_id"]
    records_request = RecordsAsked(campaign_id, number(request.query_params.get("from", "")))
    listed = partial(context.handlers.published.list, records_request)
    call = "assay.v1.RecordsService/ListRecords"
    page = await context.call(call, caller, listed, campaign_id=campaign_id)
    facts = {"campaign_id": campaign_id, "files": page.files, "next": page.next}
    drawing = Drawing(f"Records of {campaign_id}", "records.html.j2", {}, facts)
    return context.drawn(request, caller, drawing, kinds.CAMPAIGN)


async def file(context: WebContext, request: Request) -> Response:
    """One published Parquet file."""
    caller, path_of = await context.caller(request), request.path_params
    campaign_id = path_of["campaign_id"]
    find = partial(context.campaign.record_file, campaign_id, path_of["run_id"], path_of["slice"])
    call = "assay.v1.RecordsService/ReadRecords"
    path, piece, close = await context.call(call, caller, find, campaign_id=campaign_id)
    name = f"{piece.run_id}-slice-{piece.index:05d}.parquet"
    # Its hash names its content: a download goes on only with the same file (RFC 9110, 13.1.5).
    headers = {"ETag": f'"{piece.content_hash}"'}
    media, then = "application/vnd.apache.parquet", BackgroundTask(close)
    return FileResponse(path, media_type=media, filename=name, headers=headers, background=then)
