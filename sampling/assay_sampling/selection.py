"""A selection: groups of launches with their representatives and weights.

The JSON form is a contract that scripts rely on: ``docs/selection-format.md``. Weights are frozen on the
profile where the selection was made; scoring it elsewhere uses them as they are.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assay_sampling.alignment import sequence_totals_hash, totals_only
from assay_sampling.errors import AssayError, InputError
from assay_sampling.evaluation import Evaluation, doubts
from assay_sampling.intervals import NO_INTERVAL_FIXED_RULE, Interval
from assay_sampling.launches import (
    EXACT_IDENTITY,
    NAME_BLOCK_IDENTITY,
    Launches,
    sequence_hash,
)
from assay_sampling.notes import Note
from assay_sampling.saved_labels import Checkpoints, labels_document, labels_from

_WRITE = "write one with: assay select METHOD FILE -o selection.json"


@dataclass(frozen=True)
class ProfileSummary:
    """Which profile a selection was made on. The sequence hashes tell whether another one is the same.

    Those of totals compare with recordings that know only how many blocks and threads there are;
    ``totals_only`` says that this one is such a recording. ``checkpoints`` tell where another one differs.
    ``ranks``: how many ranks of one job, each a file, were joined.
    """

    launches: int
    kernels: int
    devices: tuple[str, ...]
    sources: tuple[str, ...]
    synthetic: bool
    sequence_exact: str = ""
    sequence_name_block: str = ""
    sequence_exact_totals: str = ""
    sequence_name_block_totals: str = ""
    totals_only: bool = False
    notes: tuple[Note, ...] = ()
    checkpoints: Checkpoints | None = None
    ranks: int = 1

    @classmethod
    def of(cls, launches: Launches) -> ProfileSummary:
        return cls(
            launches=len(launches),
            kernels=launches.kernels(),
            devices=tuple(launches.device_labels()),
            sources=launches.sources,
            synthetic=launches.metadata.synthetic,
            sequence_exact=sequence_hash(launches, EXACT_IDENTITY),
            sequence_name_block=sequence_hash(launches, NAME_BLOCK_IDENTITY),
            sequence_exact_totals=sequence_totals_hash(launches, "exact"),
            sequence_name_block_totals=sequence_totals_hash(launches, "name_block"),
            totals_only=totals_only(launches, "grid") or totals_only(launches, "block"),
            notes=launches.notes,
            checkpoints=Checkpoints.of(launches),
            ranks=launches.ranks,
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "launches": self.launches,
            "kernels": self.kernels,
            "devices": list(self.devices),
            "sources": list(self.sources),
            "ranks": self.ranks,
            "synthetic": self.synthetic,
            "sequence": {
                "exact": self.sequence_exact,
                "name_block": self.sequence_name_block,
                "exact_totals": self.sequence_exact_totals,
                "name_block_totals": self.sequence_name_block_totals,
                "totals_only": self.totals_only,
            },
            "notes": [note.text for note in self.notes],
        }


@dataclass(frozen=True)
class Representatives:
    """Representatives as columns, each of shape (r,).

    ``row`` is the row in the profile the selection was made on (in order of process and launch),
    ``group`` the 0-based group, ``kernel`` the demangled names, ``grid`` and ``block`` shape (r, 3) with
    -1 where the recording knows only totals (then the total stands in x).
    """

    row: np.ndarray
    group: np.ndarray
    weight: np.ndarray
    process: np.ndarray
    launch: np.ndarray
    kernel: tuple[str, ...]
    grid: np.ndarray
    block: np.ndarray

    @classmethod
    def at(
        cls, launches: Launches, rows: np.ndarray, groups: np.ndarray, weights: np.ndarray
    ) -> Representatives:
        """Representatives at the given rows of a profile; all arrays of shape (r,)."""
        chosen = launches.take(rows)
        shapes = [chosen.column(f"{what}_{axis}") for what in ("grid", "block") for axis in "xyz"]
        return cls(
            row=np.asarray(rows, np.int64),
            group=np.asarray(groups, np.int64),
            weight=np.asarray(weights, np.float64),
            process=chosen.column("process"),
            launch=chosen.column("launch"),
            kernel=tuple(launches.names[i] for i in chosen.column("kernel_id").tolist()),
            grid=np.stack(shapes[:3], axis=1).astype(np.int64),
            block=np.stack(shapes[3:], axis=1).astype(np.int64),
        )

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dictionary a representative, in order; ``sim_id`` is the 1-based id of simulators."""
        return [
            {
                "process": int(self.process[i]),
                "launch": int(self.launch[i]),
                "sim_id": int(self.launch[i]) + 1,
                "kernel": self.kernel[i],
                "grid": _shape(self.grid[i]),
                "block": _shape(self.block[i]),
                "weight": float(self.weight[i]),
            }
            for i in range(len(self.row))
        ]


def _shape(values: np.ndarray) -> list[int]:
    # An axis that the recording does not know is 1: the product is then still the true total.
    return [int(v) if v > 0 else 1 for v in values]


@dataclass(frozen=True)
class Selection:
    """Groups with representatives and weights, and their scores on the profile they were made on.

    ``group_launches`` has shape (g,); ``instruction_share`` shape (g,) or None where instructions were
    not measured; ``labels`` the group of every launch, shape (n,), is part of the JSON form on request.
    ``label_origins``, shape (n,), say where labels came from (:data:`assay_sampling.labelling.ORIGINS`),
    for two levels; they are not part of the JSON form. ``interval`` is that of the projected total; where
    it is None, ``interval_reason`` says why. ``extra`` holds what only one method reports (``sweep``,
    ``pca_components``, ``two_level``).
    """

    method: str
    parameters: Mapping[str, Any]
    seed: int
    profile: ProfileSummary
    representatives: Representatives
    group_launches: np.ndarray
    evaluation: Evaluation
    instruction_share: np.ndarray | None = None
    labels: np.ndarray | None = None
    label_origins: np.ndarray | None = None
    interval: Interval | None = None
    interval_reason: str = NO_INTERVAL_FIXED_RULE
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What is doubtful in the scores."""
        chosen = self.representatives
        return doubts(self.evaluation, chosen.row, chosen.process, chosen.launch)

    def to_dict(self, *, labels: bool = False) -> dict[str, Any]:
        """The JSON form; with ``labels`` it can be scored by groups elsewhere, and grows with launches."""
        by_group: list[list[dict[str, Any]]] = [[] for _ in range(len(self.group_launches))]
        for group, entry in zip(self.representatives.group, self.representatives.to_dicts(), strict=True):
            by_group[int(group)].append(entry)
        share = self.instruction_share
        return {
            "method": self.method,
            "parameters": dict(self.parameters),
            "seed": self.seed,
            "profile": self.profile.to_dict(),
            "groups": [
                {
                    "id": index,
                    "launches": int(self.group_launches[index]),
                    "instruction_share": None if share is None else float(share[index]),
                    "representatives": entries,
                }
                for index, entries in enumerate(by_group)
            ],
            **self.evaluation.to_dict(),
            "interval": None if self.interval is None else self.interval.to_dict(),
            "interval_reason": None if self.interval is not None else self.interval_reason,
            "score_notes": [note.to_dict() for note in self.notes],
            **self.extra,
            **self._labels_part(labels),
        }

    def _labels_part(self, wanted: bool) -> dict[str, Any]:
        if not wanted or self.labels is None:
            return {}
        return {"labels": labels_document(self.labels, len(self.group_launches), self.profile.checkpoints)}

    def to_csv(self) -> str:
        """One line a representative: what a simulator's job list needs."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            ["group", "group_launches", "process", "launch", "sim_id", "kernel", "grid_x", "grid_y",
             "grid_z", "block_x", "block_y", "block_z", "weight"]
        )  # fmt: skip
        for group, entry in zip(
            self.representatives.group.tolist(), self.representatives.to_dicts(), strict=True
        ):
            writer.writerow(
                [group, int(self.group_launches[group]), entry["process"], entry["launch"],
                 entry["sim_id"], entry["kernel"], *entry["grid"], *entry["block"], entry["weight"]]
            )  # fmt: skip
        return text.getvalue()


@dataclass(frozen=True)
class SavedSelection:
    """A selection read back from its JSON form: enough to score it on another profile."""

    document: Mapping[str, Any]
    process: np.ndarray
    launch: np.ndarray
    weight: np.ndarray
    group: np.ndarray
    kernel: tuple[str, ...]
    grid: np.ndarray
    block: np.ndarray

    def labels(self) -> np.ndarray | None:
        """Group of every launch, shape (n,); None where it was saved without. Raises InputError where they
        cannot be read or disagree with the groups."""
        if "labels" not in self.document:
            return None
        try:
            counts = np.array([int(group["launches"]) for group in self.document["groups"]], np.int64)
        except (KeyError, TypeError, ValueError):
            return None
        except OverflowError as error:
            raise InputError(
                "selection", f"the launches of a group are too many ({error})", _WRITE
            ) from error
        return labels_from(self.document["labels"], counts)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], path: str) -> SavedSelection:
        """Raises InputError naming ``path`` and the first group that is not as the format says."""
        try:
            entries = [
                (index, entry)
                for index, group in enumerate(document["groups"])
                for entry in group["representatives"]
            ]
            if not entries:
                raise ValueError("it has no representatives")
            weight = np.array([float(e["weight"]) for _, e in entries])
            if not np.all(np.isfinite(weight)) or bool((weight < 0).any()):
                raise ValueError("a weight is negative or not a number")
            process = [int(e["process"]) for _, e in entries]
            launch = [int(e["launch"]) for _, e in entries]
            if not all(0 <= p < 1 << 31 and 0 <= i < 1 << 40 for p, i in zip(process, launch, strict=True)):
                raise ValueError("a process or launch is negative or too large")
            if not all(isinstance(e["kernel"], str) for _, e in entries):
                raise ValueError("a kernel is not a name")
            return cls(
                document=document,
                process=np.array(process),
                launch=np.array(launch),
                weight=weight,
                group=np.array([index for index, _ in entries]),
                kernel=tuple(e["kernel"] for _, e in entries),
                grid=np.array([[int(v) for v in e["grid"]] for _, e in entries], np.int64).reshape(-1, 3),
                block=np.array([[int(v) for v in e["block"]] for _, e in entries], np.int64).reshape(-1, 3),
            )
        except AssayError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise InputError(
                path,
                f"it is not a selection: {type(error).__name__} {error}",
                _WRITE,
            ) from error
