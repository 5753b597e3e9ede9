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
from assay_server.web.routes.context import Asking, number
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


async def report(asking: Asking, request: Request) -> Response:
    """The report in the form that the path names."""
    caller, campaign_id = await asking.caller(request), request.path_params["campaign_id"]
    form = request.path_params["form"]
    if form in _MADE:
        made, media = _MADE[form]
        if form == "parquet":
            stored = partial(asking.campaign.report_rows, campaign_id)
            rows = await asking.of_campaign(REPORT_CALL, caller, stored, campaign_id)
            if rows is not None:
                return _download(rows, media, f"{campaign_id}.parquet", {})
        find = partial(asking.campaign.report, ReportRequest(campaign_id, ReportFormat.JSON))
        document = await asking.of_campaign(REPORT_CALL, caller, find, campaign_id)
        data = await asking.conversions.form(document, made)
        return Response(data, media_type=media, headers=_kept_as(f"{campaign_id}.{form}"))
    if form not in tuple(ReportFormat):
        known = ", ".join((*ReportFormat, *_MADE))
        raise ParameterError("report", f"there is no form {form[:20]!r}", f"take {known}")
    find = partial(asking.campaign.report, ReportRequest(campaign_id, ReportFormat(form)))
    document = await asking.of_campaign(REPORT_CALL, caller, find, campaign_id)
    is_page = form == ReportFormat.HTML
    media = "text/html" if is_page else "application/json"
    name = None if is_page else f"{campaign_id}.{form}"
    headers = {"Content-Security-Policy": REPORT_POLICY} if is_page else {}
    if isinstance(document, Path):
        return _download(document, media, name, headers)
    placed = {} if name is None else _kept_as(name)
    return Response(document, media_type=media, headers={**headers, **placed})


async def figure(asking: Asking, request: Request) -> Response:
    """A figure of the campaign's report, or of what there is so far, as SVG."""
    caller, campaign_id = await asking.caller(request), request.path_params["campaign_id"]
    find = partial(asking.campaign.figure_source, campaign_id)
    source = await asking.of_campaign(REPORT_CALL, caller, find, campaign_id)
    narrow = "narrow" in request.query_params
    drawn = await asking.studio.picture(source, request.path_params["figure"], narrow=narrow)
    return Response(drawn, media_type="image/svg+xml", headers={"Content-Security-Policy": FIGURE_POLICY})


async def records(asking: Asking, request: Request) -> Response:
    """The page that lists a campaign's published files."""
    caller, campaign_id = await asking.caller(request), request.path_params["campaign_id"]
    records_request = RecordsAsked(campaign_id, number(request.query_params.get("from", "")))
    listed = partial(asking.handlers.published.list, records_request)
    call = "assay.v1.RecordsService/ListRecords"
    page = await asking.of_campaign(call, caller, listed, campaign_id)
    facts = {"campaign_id": campaign_id, "files": page.files, "next": page.next}
    drawing = Drawing(f"Records of {campaign_id}", "records.html.j2", {}, facts)
    return asking.drawn(request, caller, drawing, kinds.CAMPAIGN)


async def file(asking: Asking, request: Request) -> Response:
    """One published Parquet file."""
    caller, given = await asking.caller(request), request.path_params
    campaign_id = given["campaign_id"]
    find = partial(asking.campaign.record_file, campaign_id, given["run_id"], given["slice"])
    call = "assay.v1.RecordsService/ReadRecords"
    path, piece, close = await asking.of_campaign(call, caller, find, campaign_id)
    name = f"{piece.run_id}-slice-{piece.index:05d}.parquet"
    # Its hash names its content: a download goes on only with the same file (RFC 9110, 13.1.5).
    headers = {"ETag": f'"{piece.content_hash}"'}
    return _download(path, "application/vnd.apache.parquet", name, headers, BackgroundTask(close))


def _download(
    path: Path, media: str, name: str | None, headers: Mapping[str, str], then: BackgroundTask | None = None
) -> FileResponse:
    """A file, of which a browser may ask for a part (RFC 9110, 14); ``name`` None: it is shown, not kept."""
    return FileResponse(path, media_type=media, filename=name, headers=dict(headers), background=then)


def _kept_as(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
