"""Reports of campaigns in a folder: written at once, or staged unseen and put in place later."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from assay_core.files.durable import make_folder, storage_errors, sync_directory, write_atomically
from assay_sampling.errors import ParameterError

# A report that no campaign has yet; the name of its analysis and the file's own name follow.
_STAGED = "staged-"
REPORT_FORMS = ("json", "html", "parquet")


class ReportFolder:
    """``<folder>/<campaign_id>/report.json``, ``report.html`` and ``report.parquet``."""

    def __init__(self, folder: Path) -> None:
        self.reports_folder = folder

    def write_report(self, campaign_id: str, form: str, data: bytes) -> None:
        path = self.report_path(campaign_id, form)
        with storage_errors(path):
            make_folder(path.parent)
            write_atomically(path, data)

    def stage_report(self, campaign_id: str, name: str, forms: Mapping[str, bytes]) -> None:
        for form, data in forms.items():
            path = self._staged_report(campaign_id, form, name)
            with storage_errors(path):
                make_folder(path.parent)
                write_atomically(path, data)

    def put_report(self, campaign_id: str, name: str, forms: Collection[str]) -> None:
        staged = {form: self._staged_report(campaign_id, form, name) for form in forms}
        folder = self.reports_folder / campaign_id
        with storage_errors(folder):
            # First the others: whoever stood still with one of them must not put it in the place of this one.
            for other in folder.glob(f"{_STAGED}*"):
                if other not in staged.values():
                    other.unlink(missing_ok=True)
            for form, path in staged.items():
                path.replace(self.report_path(campaign_id, form))
            sync_directory(folder)

    def _staged_report(self, campaign_id: str, form: str, name: str) -> Path:
        path = self.report_path(campaign_id, form)
        return path.with_name(f"{_STAGED}{name}-{path.name}")

    def report_path(self, campaign_id: str, form: str) -> Path:
        if form not in REPORT_FORMS:
            raise ParameterError("report", f"there is no format {form!r}", f"use {' or '.join(REPORT_FORMS)}")
        return self.reports_folder / campaign_id / f"report.{form}"

    def delete_report(self, campaign_id: str) -> None:
        with storage_errors(self.reports_folder):
            shutil.rmtree(self.reports_folder / campaign_id, ignore_errors=True)

    def staged_reports(self) -> Iterator[Path]:
        """The files of reports that were not put in place."""
        return self.reports_folder.glob(f"*/{_STAGED}*")
