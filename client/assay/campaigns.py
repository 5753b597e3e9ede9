"""A campaign on a server: its state, its runs, its report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from assay import frames
from assay.display import page, table
from assay.plots import Plot
from assay.records import Records
from assay.selections import Selection
from assay_client.remote.client import Client
from assay_sampling.errors import ParameterError, RefusedError

if TYPE_CHECKING:
    import pandas as pd

    from assay_report.model.report import Report

_RUN_TEXTS = ("run_id", "workload", "device_kind", "level", "state", "agent")
_CONDITION = {"cache": pa.string(), "clock": pa.string(), "sm_percent": pa.float64()}
_RUN_COUNTS = ("repeat", "launches", "attempts")
_ROW_TEXTS = ("workload", "device", "method", "status", "reason", "selection")
_ROW_COUNTS = ("launches", "groups", "representatives")
_ROW_SCORES = (
    "error_percent", "signed_error_percent", "group_error_percent", "speedup", "speedup_instructions",
    "speedup_launches",
)  # fmt: skip


class Campaign:
    """A campaign on a server. Everything is asked of the server when it is called."""

    def __init__(self, client: Client, campaign_id: str) -> None:
        self._client = client
        self._id = campaign_id

    @property
    def id(self) -> str:
        return self._id

    @property
    def state(self) -> str:
        """``running``, ``analysing``, ``done``, ``failed`` or ``cancelled``, now."""
        return str(self._client.summary(self._id)["state"])

    def status(self) -> dict[str, Any]:
        """The document of ``assay lab status ID --json``, now."""
        return self._client.status(self._id)

    def watch(self) -> Iterator[dict[str, Any]]:
        """The status now, and after every change, until the campaign has ended."""
        return self._client.watch(self._id)

    def wait(self) -> Campaign:
        """Wait until the campaign has ended, however it ends; see :attr:`state`."""
        for _status in self.watch():
            pass
        return self

    def pause(self, workload: str = "", *, at_once: bool = False) -> dict[str, Any]:
        """Hold runs that wait, of the campaign or of a workload; returns the status."""
        return self._client.pause(self._id, workload=workload, at_once=at_once)

    def resume(self, workload: str = "") -> dict[str, Any]:
        """Let paused runs go on; returns the status."""
        return self._client.resume(self._id, workload=workload)

    def cancel(self, workload: str = "") -> dict[str, Any]:
        """Cancel what has not finished; returns the status. What is stored stays."""
        return self._client.cancel(self._id, workload=workload)

    def retry(self, workload: str = "") -> dict[str, Any]:
        """Re-queue failed and cancelled runs; returns the status."""
        return self._client.retry(self._id, workload=workload)

    def runs(self) -> pa.Table:
        """A row a run: what it measures, under which condition, its state and its launches."""
        rows = self._client.status(self._id)["runs"]
        return pa.table(
            {
                **{name: pa.array([each[name] for each in rows], pa.string()) for name in _RUN_TEXTS},
                **{
                    name: pa.array([each["condition"][name] for each in rows], kind)
                    for name, kind in _CONDITION.items()
                },
                **{name: pa.array([each[name] for each in rows], pa.int64()) for name in _RUN_COUNTS},
            }
        )

    def records(
        self,
        workload: str | None = None,
        *,
        device: str | None = None,
        level: str | None = None,
        run: str | None = None,
    ) -> Records:
        """The published launches of runs: of all that have any, or those of a workload, kind of GPU, level or
        of one run.

        Raises ParameterError if no run is such a one.
        """
        filters = {"workload": workload, "device_kind": device, "level": level, "run_id": run}
        conditions = {name: value for name, value in filters.items() if value is not None}
        runs = [each for each in self._client.status(self._id)["runs"] if each["level"] != "bare"]
        matches = [each for each in runs if all(each[name] == value for name, value in conditions.items())]
        if conditions and not matches:
            words = ", ".join(f"{name} {value!r}" for name, value in conditions.items())
            raise ParameterError(
                f"campaign {self._id}", f"no run with launches has {words}", "see Campaign.runs()"
            )
        return Records(self._client, self._id, matches)

    def report(self) -> Report:
        """The report of an ended campaign as a typed document; docs/report-format.md."""
        return self._client.report(self._id)

    def selection(self, key: str) -> Selection:
        """A selection of the report by its key: the column ``selection`` of :meth:`to_arrow`.

        Raises ParameterError for another key, RefusedError for one that the report does not hold whole.
        """
        selections = self.report().selections
        if key not in selections:
            raise ParameterError(
                "selection", f"the report has none {key[:100]!r}", "use a key of the column 'selection'"
            )
        if selections[key].groups_left_out:
            raise RefusedError(
                f"selection {key[:100]}",
                "it has too many representatives for a report, which left groups out",
                "select again on the campaign's records",
            )
        return Selection(selections[key])

    def to_arrow(self) -> pa.Table:
        """The report's table of methods: a row for each workload, GPU, condition and method."""
        rows = self.report().rows
        condition = {
            name: pa.array([getattr(each.condition, name, None) for each in rows], kind)
            for name, kind in _CONDITION.items()
        }
        return pa.table(
            {
                **{
                    name: pa.array([getattr(each, name) for each in rows], pa.string()) for name in _ROW_TEXTS
                },
                **condition,
                **{
                    name: pa.array([getattr(each, name) for each in rows], pa.int64()) for name in _ROW_COUNTS
                },
                **{
                    name: pa.array([getattr(each, name) for each in rows], pa.float64())
                    for name in _ROW_SCORES
                },
                "star": pa.array([each.star for each in rows], pa.bool_()),
            }
        )

    def to_pandas(self) -> pd.DataFrame:
        """As :meth:`to_arrow`."""
        return frames.to_frame(self.to_arrow())

    def plots(self) -> tuple[Plot, ...]:
        """The figures of the report, of the suite first; docs/figures.md."""
        from assay_report.figures.gallery import of_report  # noqa: PLC0415 - only if it is asked for

        return tuple(Plot(figure) for figure in of_report(self.report()))

    def __repr__(self) -> str:
        return f"Campaign({self._id!r})"

    def _repr_html_(self) -> str:
        status = self._client.summary(self._id)
        facts = [
            ("name", status["name"]),
            ("state", status["state"]),
            (
                "runs",
                f"{status['runs_done']:,} of {status['runs_total']:,} done, {status['runs_failed']:,} failed",
            ),
            ("data", "synthetic" if status["synthetic"] else ""),
        ]
        if status["state"] != "done":
            return page(f"Campaign {self._id}", facts)
        shown = ("workload", "device", "method", "representatives", "error_percent", "speedup", "reason")
        columns: dict[str, list[Any]] = self.to_arrow().select(shown).to_pydict()
        return page(f"Campaign {self._id}", facts, table(shown, list(zip(*columns.values(), strict=True))))
