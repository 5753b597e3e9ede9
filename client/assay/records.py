"""The published launches of a campaign's runs, downloaded as a stream of Arrow record batches.

A stream that breaks goes on where it was; its cursor lets another process go on. docs/python.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from assay import exchange, frames
from assay.display import page, table
from assay.profiles import Profile
from assay_client.remote.client import Client
from assay_core.records.archive import LaunchesCursor
from assay_sampling.errors import ParameterError
from assay_sampling.gathering.from_batches import gather
from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES, Launches
from assay_sampling.launches.joining import join
from assay_sampling.launches.profile import Profile as Levels
from assay_sampling.launches.table import METADATA_KEY, LaunchBatch, Names

if TYPE_CHECKING:
    import pandas as pd

Run = Mapping[str, Any]
_SHOWN = ("run_id", "workload", "device_kind", "level", "repeat", "launches")


class RecordStream:
    """An iterator over record batches; :attr:`cursor` is the place after the last one."""

    def __init__(
        self, client: Client, campaign_id: str, runs: Sequence[str], columns: Sequence[str], cursor: str
    ) -> None:
        self._run, place = _place(cursor, runs)
        self._place = place
        self._batches = self._all(client, campaign_id, runs, columns)

    def _all(
        self, client: Client, campaign_id: str, runs: Sequence[str], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        table_columns = [exchange.table_column(each) for each in columns]
        for run in runs[runs.index(self._run) :] if self._run else runs:
            place = self._place if run == self._run else LaunchesCursor()
            self._run = run
            for part in client.launches(campaign_id, run, columns=table_columns, cursor=place):
                self._place = part.next
                yield _shown(part.batch, part.names, run)

    @property
    def cursor(self) -> str:
        """The place after the last batch, for ``batches(cursor=...)`` of this or another process."""
        return "" if not self._run else json.dumps({"run_id": self._run, **asdict(self._place)})

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)


class Records:
    """The published launches of runs of a campaign: a row a launch, run after run."""

    def __init__(self, client: Client, campaign_id: str, runs: Sequence[Run]) -> None:
        self._client = client
        self._campaign_id = campaign_id
        self._runs = tuple(runs)

    @property
    def runs(self) -> tuple[str, ...]:
        """The ids of the runs, in the campaign's order."""
        return tuple(run["run_id"] for run in self._runs)

    @property
    def launches(self) -> int:
        """Launches of all these runs, as far as they had been published when they were asked for."""
        return sum(run["launches"] or 0 for run in self._runs)

    def __len__(self) -> int:
        return self.launches

    def batches(self, columns: Sequence[str] = (), *, cursor: str = "") -> RecordStream:
        """All launches as record batches of a few MiB; neither side holds more than one.

        Args:
            columns: the columns of :meth:`assay.Profile.to_arrow` to download; none: all. Column ``run_id``
                comes first.
            cursor: go on after this :attr:`RecordStream.cursor`.

        Raises ParameterError for an unknown column or a cursor of other runs, RefusedError if other launches
        were published since, ServerUnreachableError if the server is away for more than a minute.
        """
        return RecordStream(self._client, self._campaign_id, self.runs, tuple(columns), cursor)

    def to_arrow(self, columns: Sequence[str] = ()) -> pa.Table:
        """All launches as one table; a counter that a run lacks is null. ``columns``: see :meth:`batches`."""
        parts = [pa.Table.from_batches([batch]) for batch in self.batches(columns)]
        if not parts:
            return pa.table({"run_id": _run_column("", 0)})
        together = pa.concat_tables(parts, promote_options="default").unify_dictionaries()
        # What is true of one run's launches may not be of another's.
        return together if len(self._runs) == 1 else together.replace_schema_metadata(None)

    def to_pandas(self, columns: Sequence[str] = ()) -> pd.DataFrame:
        """As :meth:`to_arrow`."""
        return frames.to_frame(self.to_arrow(columns))

    def to_profile(self, *, memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES) -> Profile:
        """The launches as a profile, for selecting and scoring here.

        Raises ParameterError unless they are one detailed run, one light run, or one of both: narrow them
        with the arguments of :meth:`assay.Campaign.records`.
        """
        by_level = {
            level: [run for run in self._runs if run["level"] == level] for level in ("detailed", "light")
        }
        for level, runs in by_level.items():
            if len(runs) > 1:
                names = ", ".join(run["run_id"] for run in runs[:5])
                raise ParameterError(
                    "records",
                    f"there are {len(runs)} {level} runs ({names}{', ...' if len(runs) > 5 else ''})",
                    "narrow them: records(workload, device=..., level=..., run=...)",
                )
        detailed, light = (
            self._joined(runs[0]["run_id"], memory_limit_bytes) if runs else None
            for runs in by_level.values()
        )
        if detailed is None and light is None:
            raise ParameterError("records", "no run has published launches", "see Campaign.runs()")
        return Profile(Levels(detailed=detailed, light=light))

    def _joined(self, run: str, memory_limit_bytes: int) -> Launches | None:
        """The launches of a run, None if it has published none. Slices leave gaps, which joining keeps."""
        slices: dict[int, list[LaunchBatch]] = {}
        for part in self._client.launches(self._campaign_id, run):
            batches = slices.setdefault(part.next.slice, [])
            # The first batch of a slice brings all of its names.
            new = dict((part.names or Names()).items()) if not batches else {}
            batches.append(LaunchBatch(part.batch, new))
        launches = [
            gather(
                batches,
                batches[0].records.schema,
                sources=(f"{run} slice {index}" if len(slices) > 1 else run,),
                memory_limit_bytes=memory_limit_bytes,
            )
            for index, batches in slices.items()
        ]
        return join(launches) if launches else None

    def __repr__(self) -> str:
        return f"Records({len(self._runs)} runs, {self.launches:,} launches)"

    def _repr_html_(self) -> str:
        rows = [[run[name] for name in _SHOWN] for run in self._runs]
        return page("Records", [("launches", f"{self.launches:,}")], table(_SHOWN, rows))


def _shown(batch: pa.RecordBatch, names: Names | None, run: str) -> pa.RecordBatch:
    texts = exchange.with_texts(pa.Table.from_batches([batch]), names or Names())
    metadata = {METADATA_KEY: texts.schema.metadata[METADATA_KEY]}
    column = _run_column(run, batch.num_rows)
    schema = pa.schema([pa.field("run_id", column.type), *texts.schema], metadata)
    arrays = [column, *(each.combine_chunks() for each in texts.columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _run_column(run: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([run]))


def _place(cursor: str, runs: Sequence[str]) -> tuple[str, LaunchesCursor]:
    """The run and the place in it that a cursor names; "" at the beginning."""
    if not cursor:
        return "", LaunchesCursor()
    try:
        document = json.loads(cursor)
        run = document.pop("run_id")
        place = LaunchesCursor(int(document["slice"]), int(document["launch"]), str(document["content_hash"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ParameterError(
            "cursor", f"{cursor[:100]!r} is not a place in records", "give RecordStream.cursor, or none"
        ) from error
    if run not in runs:
        raise ParameterError(
            "cursor",
            f"it is of run {str(run)[:100]!r}, which is not one of these",
            "ask for that run's records",
        )
    return run, place
