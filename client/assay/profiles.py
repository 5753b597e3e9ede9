"""A profile: the launches of one workload, read from recordings, tables or a campaign's records."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from assay import exchange, frames
from assay.comparisons import Comparison
from assay.display import page
from assay.plots import Plot
from assay.recorded import Recorded, Recording, levels_of
from assay.selections import Selection
from assay_client.files import AnyPath
from assay_client.recordings.analyses import read_profile
from assay_client.recordings.classified import classify, operation_table
from assay_client.recordings.comparing import compare, parameters_by_method
from assay_client.recordings.launch_files import write_launches
from assay_client.recordings.units import UnitChoice, unit_choice, unit_for
from assay_sampling.errors import ParameterError
from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES, Launches
from assay_sampling.launches.profile import Profile as Levels
from assay_sampling.methods.by_operation import operation_profile, select_by_unit
from assay_sampling.methods.choosing.recommended import select_recommended

if TYPE_CHECKING:
    import pandas as pd

Level = Literal["whole", "detailed", "light"]


class Profile:
    """The launches of one workload on one kind of GPU: with counters, of a free run, or both.

    Make one with :meth:`read`, :meth:`from_pandas` or :meth:`from_arrow`. It does not change.
    """

    def __init__(self, levels: Levels) -> None:
        if not isinstance(levels, Levels):
            raise ParameterError(
                "Profile",
                f"it is not made from an object of type {type(levels).__name__}",
                "use Profile.from_pandas(frame), Profile.from_arrow(table) or Profile.read(files)",
            )
        self._levels = levels

    @classmethod
    def read(
        cls,
        files: AnyPath | Sequence[AnyPath],
        *,
        light: AnyPath | None = None,
        ranks: bool = False,
        synthetic: bool | None = None,
        launch_offset: int | Sequence[int] | None = None,
        metrics: Sequence[str] = (),
        memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
    ) -> Profile:
        """Read recordings of Nsight Compute, Nsight Systems, Kineto or Accel-Sim, or Assay's own Parquet.

        Args:
            files: one file, or the windows or ranks of one run.
            light: the light recording of a two-level profile.
            ranks: each file is a rank of one job, in their order.
            synthetic: True marks the data as not measured on silicon; None: as the files say.
            launch_offset: the number of the first launch, of all files or of each.
            metrics: of Nsight Compute, to keep as counters under their own names, though Assay has none for
                them.
            memory_limit_bytes: refuse before holding more.

        Raises InputError for a file that cannot be read, NotJoinableError for files that do not belong
        together, ParameterError for options that do not fit the files.
        """
        return cls(
            read_profile(
                files,
                light=light,
                ranks=ranks,
                synthetic=synthetic,
                launch_offset=launch_offset,
                metrics=metrics,
                memory_limit_bytes=memory_limit_bytes,
            )
        )

    @classmethod
    def from_arrow(
        cls,
        table: pa.Table,
        *,
        light: pa.Table | None = None,
        name: str = "table",
        synthetic: bool | None = None,
        device: str | None = None,
    ) -> Profile:
        """Launches from an Arrow table: as :meth:`to_arrow` gives it, or with its columns (docs/python.md).

        Args:
            table: a row a launch; with counters it is the detailed level.
            light: the light level, without counters, if ``table`` is a window with counters.
            name: what errors and selections call the table.
            synthetic: True marks the data as not measured on silicon; None: as the table's metadata say.
            device: the GPU's name; None: as the table's metadata say.

        Raises LaunchTableError for a column that is missing, unknown, in another unit or of wrong values.
        """
        whole = exchange.from_arrow(table, name=name, synthetic=synthetic, device=device)
        if light is None:
            detailed = whole.metadata.level == "detailed"
            return cls(Levels(detailed=whole if detailed else None, light=None if detailed else whole))
        free = exchange.from_arrow(light, name=f"light {name}", synthetic=synthetic, device=device)
        for launches, level, what in ((whole, "detailed", "table"), (free, "light", "light")):
            if launches.metadata.level != level:
                raise ParameterError(
                    what,
                    f"it has {'no ' if level == 'detailed' else ''}counters",
                    "give the table with counters first, and the one of the free run as light",
                )
        return cls(Levels(detailed=whole, light=free))

    @classmethod
    def from_pandas(
        cls,
        frame: pd.DataFrame,
        *,
        light: pd.DataFrame | None = None,
        name: str = "frame",
        synthetic: bool | None = None,
        device: str | None = None,
    ) -> Profile:
        """As :meth:`from_arrow`, from frames; NaN is not measured. Units:  ``frame.attrs["units"]``."""
        tables = [None if each is None else frames.from_frame(each, name) for each in (frame, light)]
        assert tables[0] is not None
        return cls.from_arrow(tables[0], light=tables[1], name=name, synthetic=synthetic, device=device)

    @property
    def levels(self) -> Levels:
        """The launches by level in the form of ``assay_sampling``, which may change between releases."""
        return self._levels

    @property
    def launches(self) -> int:
        """Launches of the whole workload."""
        return len(self._levels.whole)

    def __len__(self) -> int:
        return self.launches

    @property
    def kernels(self) -> int:
        """Distinct kernels of the whole workload."""
        return self._levels.whole.kernels()

    @property
    def counters(self) -> tuple[str, ...]:
        """Counters that were measured for at least one launch."""
        detailed = self._levels.detailed
        return () if detailed is None else detailed.counters

    @property
    def devices(self) -> tuple[str, ...]:
        """The GPUs that launches ran on."""
        return tuple(self._levels.whole.device_labels())

    @property
    def origin(self) -> str:
        """``measured`` on silicon, ``synthetic``, or ``simulated``."""
        return self._levels.whole.metadata.origin

    @property
    def sources(self) -> tuple[str, ...]:
        """The files or tables that it was read from."""
        levels = (self._levels.detailed, self._levels.light)
        return tuple(source for each in levels if each is not None for source in each.sources)

    def to_arrow(self, level: Level = "whole") -> pa.Table:
        """A row a launch, in the order of (process, launch), with names as text and units in the fields.

        ``level``: all launches of the workload, or those of one level. Raises ParameterError for a level
        that the profile lacks.
        """
        return exchange.to_arrow(self._level(level))

    def to_pandas(self, level: Level = "whole") -> pd.DataFrame:
        """As :meth:`to_arrow`; units are in ``attrs["units"]``, kernels are categories."""
        return frames.to_frame(self.to_arrow(level))

    def write(self, path: AnyPath, level: Level | None = None) -> tuple[Path, ...]:
        """Write Parquet files that every verb reads, with names, units and facts; returns their paths.

        One level is one file, ``path``. Of a profile with both levels without ``level``: the detailed one as
        ``path`` with ``.detailed`` before its suffix, and the light one with ``.light``;
        ``Profile.read(paths)`` reads both back.
        """
        detailed, light = self._levels.detailed, self._levels.light
        if level is None and detailed is not None and light is not None:
            whole = Path(path)
            files = {
                whole.with_name(f"{whole.stem}.{name}{whole.suffix}"): launches
                for name, launches in (("detailed", detailed), ("light", light))
            }
        else:
            files = {Path(path): self._level(level or "whole")}
        for file, launches in files.items():
            write_launches(file, launches)
        return tuple(files)

    def operations(self) -> pa.Table:
        """A row an operation (``assay docs concepts``), in the order of process and first launch.

        Columns: ``process``, ``launch`` (its first), ``operation``, ``kind``, ``input_shapes`` (JSON, ""
        where unknown), ``thread``, ``launches``, ``duration_ns`` (the sum, null where one was not measured)
        and ``stratum``. Raises RefusedError for a recording that knows no operations.
        """
        return operation_table(operation_profile(self._levels).whole)

    def select(
        self,
        method: str | None = None,
        *,
        seed: int = 0,
        unit: UnitChoice = "auto",
        on: Recording | None = None,
        **parameters: Any,
    ) -> Selection:
        """Select what stands for the workload; as ``assay select [METHOD]``, with equal numbers.

        Args:
            method: its name; ``assay docs methods``. None: the one of the best verdict of a few fast ones.
            seed: of every random choice.
            unit: ``launch``, ``operation``, or ``auto``: launches, unless ``on`` launches something else.
            on: a recording of another GPU that decides the unit.
            parameters: the method's.

        Raises ParameterError for an unknown method or parameter, or for parameters without a method,
        RefusedError where the method does not apply, or for operations of a recording that knows none.
        """
        if method is None and parameters:
            raise ParameterError(
                ", ".join(parameters), "no method is named", "name the method: select('pks')"
            )
        chosen = unit_for(unit_choice(unit), self._levels, None if on is None else levels_of(on))
        if method is None:
            return Selection(select_recommended(chosen, self._levels, seed).selection, self._levels)
        return Selection(select_by_unit(chosen, method, self._levels, parameters, seed), self._levels)

    def classify(self, *, seed: int = 0, unit: UnitChoice = "auto", **parameters: Any) -> Selection:
        """Label every launch or operation of a profile with both levels; as ``assay classify``.

        ``parameters`` are those of ``pks``; :meth:`Selection.labels` has the groups. Raises ParameterError
        for a profile of one level, RefusedError where PKS does not apply.
        """
        made = classify(self._levels, parameters, seed, unit_for(unit_choice(unit), self._levels))
        return Selection(made, self._levels)

    def compare(
        self,
        *methods: str,
        parameters: dict[str, Any] | None = None,
        seed: int = 0,
        trials: int | None = None,
        unit: UnitChoice = "auto",
        on: Recorded | AnyPath | Sequence[Recorded | AnyPath] = (),
        speedup: float | None = None,
    ) -> Comparison:
        """Select with every method, or those named, and score all alike; as ``assay compare``.

        Args:
            methods: their names; none: all.
            parameters: by NAME for each method that has it, or by METHOD.NAME.
            seed: of every random choice.
            trials: tries of methods that draw or read costs.
            unit: as in :meth:`select`.
            on: recordings of other GPUs; stars and the recommended method follow the scores there.
            speedup: at which methods are compared there; by default the median of their own.

        Raises RefusedError if no method applies.
        """
        by_method = parameters_by_method(parameters or {}, methods) if parameters else {}
        others = [on] if isinstance(on, str | PathLike | Recorded) else on
        return Comparison(
            compare(
                self._levels,
                methods=methods,
                parameters=by_method,
                seed=seed,
                trials=trials,
                unit=unit_choice(unit),
                on=[levels_of(each) for each in others],
                speedup=speedup,
            )
        )

    def plot(self) -> Plot:
        """The launches in order: IPC or cost, and a lane for each kernel. Those of a selection with its
        groups: :meth:`assay.Selection.plot`."""
        from assay_client.recordings.figures import of_profile  # noqa: PLC0415 - only if it is asked for

        return Plot(of_profile(self._levels))

    def _level(self, level: str) -> Launches:
        levels = {"whole": self._levels.whole, "detailed": self._levels.detailed, "light": self._levels.light}
        level_launches = levels.get(level)
        if level_launches is None:
            has = ", ".join(repr(name) for name, launches in levels.items() if launches is not None)
            raise ParameterError("level", f"the profile has no level {level!r}", f"use one of {has}")
        return level_launches

    def _facts(self) -> list[tuple[str, object]]:
        levels = {"detailed": self._levels.detailed, "light": self._levels.light}
        return [
            ("launches", f"{self.launches:,}"),
            ("kernels", f"{self.kernels:,}"),
            ("devices", ", ".join(self.devices)),
            ("levels", ", ".join(f"{name} ({len(each):,})" for name, each in levels.items() if each)),
            ("counters", f"{len(self.counters)}" if self.counters else "none"),
            ("origin", self.origin),
            ("from", ", ".join(self.sources)),
        ]

    def __repr__(self) -> str:
        return f"Profile({', '.join(f'{name}: {value}' for name, value in self._facts() if value)})"

    def _repr_html_(self) -> str:
        return page("Profile", self._facts())
