"""The selection document: what ``assay select`` writes, and what a report carries of each selection."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import ConfigDict, JsonValue

from assay_sampling.documents.base import ArrangedPart, Part, says
from assay_sampling.documents.by_method import (
    Grouping,
    Iterations,
    PhotonPart,
    Repetitions,
    SeedEntry,
    SweepEntry,
    Tier,
    TwoLevels,
)
from assay_sampling.documents.common import (
    ExpectedElsewhere,
    NoteEntry,
    Parameters,
    Scores,
    VerdictEntry,
)
from assay_sampling.estimation.sample_design import Drawing
from assay_sampling.operations.identity import OperationKind
from assay_sampling.parameters import Unit, WeightKind
from assay_sampling.running.identity import Origin

SELECTION_VERSION = 1
LABELS_VERSION = 1


class SequenceHashes(Part):
    """Hashes of what was launched in which order, which show whether two recordings launch the same."""

    exact: Annotated[str, says("by kernel, grid and block")]
    name_block: Annotated[str, says("by kernel and block")]
    exact_totals: Annotated[str, says("by kernel and total numbers of blocks and threads")] = ""
    name_block_totals: Annotated[str, says("by kernel and total number of threads")] = ""
    totals_only: Annotated[bool, says("the recording knows only these totals")] = False


class ProfilePart(Part):
    """The profile that launches are from (with two levels: the light recording)."""

    launches: Annotated[int, says("launches that the groups divide", "launches")]
    kernels: Annotated[int, says("distinct demangled names", "kernels")]
    devices: Annotated[list[str], says("names of the GPUs")]
    sources: Annotated[list[str], says("names of the recordings")]
    ranks: Annotated[int, says("ranks of one job, each a file, that were joined", "ranks")] = 1
    origin: Annotated[Origin | None, says("what produced the data; `null`: a release before origins")] = None
    synthetic: Annotated[bool, says("no silicon produced the data, and no simulator")]
    simulated: Annotated[bool, says("a cycle-level simulator produced the data")] = False
    sequence: Annotated[SequenceHashes | None, says("what was launched, as hashes")] = None
    notes: Annotated[list[NoteEntry], says("what you must know about the files")] = []


class OperationLaunch(Part):
    """A launch of an operation."""

    launch: Annotated[int, says("0-based launch of the process, in API order", "ordinal")]
    sim_id: Annotated[int, says("1-based id of simulators: launch + 1", "ordinal")]
    kernel: Annotated[str, says("demangled name")]
    grid: Annotated[list[int], says("blocks along x, y, z", "blocks")]
    block: Annotated[list[int], says("threads along x, y, z", "threads")]


class OperationEntry(Part):
    """An operation that is a representative: all of its launches have its weight."""

    kind: Annotated[OperationKind, says("region, operator, routine, range, graph or kernel")]
    name: Annotated[str, says("canonical name, without serial numbers")]
    shapes: Annotated[str, says("JSON of the input shapes, empty where unknown")]
    thread: Annotated[int, says("calling thread of the process, by first launch", "ordinal")]
    row: Annotated[int, says("its place among all operations, from 0", "ordinal")]
    launches: Annotated[list[OperationLaunch], says("its launches, in order")]


class OperationsEntry(Part):
    """What the profile of a selection by operation calls, in order, so that another recording can be matched.

    Arrays are little-endian, compressed with zlib, in base64.
    """

    calls: Annotated[int, says("operations that the groups divide", "operations")]
    launches: Annotated[int, says("launches of them", "launches")]
    identities: Annotated[
        list[tuple[str, str, str, int]], says("distinct operations: kind, name, shapes, thread")
    ]
    identity: Annotated[str, says("of each operation, its place in `identities`: `uint32`")]
    process: Annotated[str, says("of each operation, its process: `uint32`")]
    launch: Annotated[str, says("of each operation, its first launch: `int64`")]
    time: Annotated[str, says("of each operation, its light time or cost: `float64`")]


class RepresentativeEntry(ArrangedPart):
    """A launch that stands for others; by operation, the first launch of an operation that does."""

    left_out_unless_set: ClassVar[frozenset[str]] = frozenset({"operation"})

    process: Annotated[int, says("process", "ordinal")]
    launch: Annotated[int, says("0-based launch of the process, in API order", "ordinal")]
    sim_id: Annotated[int, says("1-based id of simulators: launch + 1", "ordinal")]
    kernel: Annotated[str, says("demangled name")]
    grid: Annotated[list[int], says("blocks along x, y, z; 0, 0, 0: not known", "blocks")]
    block: Annotated[list[int], says("threads along x, y, z; 0, 0, 0: not known", "threads")]
    weight: Annotated[float, says("launches that it stands for, by which its cost is multiplied", "launches")]
    draws: Annotated[
        int | None,
        says(
            "`proportional` and `root_light_time`: how many draws met it, 0 if it was taken whole; `null`: "
            "drawn otherwise",
            "draws",
        ),
    ] = None
    light_time: Annotated[
        float | None, says("its light time; `null`: not drawn at random, or no light run", "ns")
    ] = None
    light_time_weight: Annotated[
        float | None,
        says(
            "light time of its group / light time of the group's representatives, for other GPUs "
            "([weights.md](methods/weights.md)); `null`: no light run"
        ),
    ] = None
    operation: Annotated[OperationEntry | None, says("by operation: what it is, and its launches")] = None


class GroupEntry(Part):
    """Launches that the method treats as alike."""

    id: Annotated[int, says("0-based", "ordinal")]
    launches: Annotated[int, says("its launches", "launches")]
    instruction_share: Annotated[
        float | None, says("of all executed instructions; `null`: not measured", "fraction")
    ] = None
    kernels: Annotated[
        int | None, says("distinct kernels of its launches; `null`: not drawn at random", "kernels")
    ] = None
    cost_cov: Annotated[
        float | None,
        says("standard deviation / mean of its launches' cost on the profile; `null`: not drawn at random"),
    ] = None
    representatives: Annotated[list[RepresentativeEntry], says("the launches that stand for it")]


class WeightsEntry(Part):
    """Which weights are used where."""

    here: Annotated[
        WeightKind,
        says("what `weight` counts, and these scores use: `launches`, or `instructions` as Sieve has it"),
    ] = "launches"
    elsewhere: Annotated[
        WeightKind,
        says("used on other GPUs, conditions and simulators unless told otherwise; may be `light_time`"),
    ] = "launches"


class IntervalEntry(Part):
    """Interval of the projected total, for methods that draw launches at random."""

    low: Annotated[float, says("its lower end", "`cost.unit`")]
    high: Annotated[float, says("its upper end", "`cost.unit`")]
    confidence: Annotated[float, says("how often such intervals hold the total", "fraction")]
    expected_error_percent: Annotated[
        float, says("expected absolute error of the projected total", "percent")
    ]
    basis: Annotated[
        str,
        says(
            "`known_design` or `known_variance` "
            "([intervals.md](methods/intervals.md)); on another GPU `target_spread`, `target_residuals`, "
            "`steps_by_size`, `hansen_hurwitz` or `successive_differences` "
            "([target-intervals.md](methods/target-intervals.md))"
        ),
    ]


class CheckpointsEntry(Part):
    """Base64 of a little-endian 32-bit hash of each block: from which launch on recordings differ."""

    launches_per_block: Annotated[int, says("launches of a block; at most 1,024 blocks", "launches")]
    exact: Annotated[str, says("by kernel, grid and block")]
    name_block: Annotated[str, says("by kernel and block")]


class CellsEntry(Part):
    """Light time where the selection was made, of the launches of one group, kernel and number of blocks
    together: a *cell*. Cells are in the order of their groups."""

    cells: Annotated[int, says("how many there are", "cells")]
    launches: Annotated[str, says("`int64`, encoded as `data`: the launches of each")]
    light_time: Annotated[str, says("`float64`, encoded as `data`: the light time of each")]


class LabelsEntry(ArrangedPart):
    """The group of every launch."""

    left_out_unless_set: ClassVar[frozenset[str]] = frozenset({"origins", "right", "cells"})

    version: Annotated[int, says("1; programs ignore labels of an unknown version")]
    launches: Annotated[
        int, says("number of labels, as in `profile.launches`, or `operations.calls`", "launches")
    ]
    type: Annotated[
        str, says("`uint8`, `uint16` or `uint32`, little-endian: the smallest that holds the groups")
    ]
    encoding: Annotated[str, says("`zlib+base64`: base64 of the zlib-compressed labels")]
    data: Annotated[
        str,
        says("the text; in Python `numpy.frombuffer(zlib.decompress(base64.b64decode(data)), type)`"),
    ]
    checkpoints: Annotated[CheckpointsEntry | None, says("where another recording differs")] = None
    origins: Annotated[
        str | None,
        says(
            "with two levels, `uint8` encoded as `data`: 0 a launch of the window, 1 labelled by a model, "
            "2 of a kernel that the window lacks, 3 abstained, 4 grouped by its kernel and size"
        ),
    ] = None
    right: Annotated[
        str | None,
        says(
            "with two levels, `uint32` encoded as `data`: 1 + the group that counters give a launch which a "
            "model labelled, 0 where nothing tells"
        ),
    ] = None
    cells: Annotated[CellsEntry | None, says("with a light run")] = None


_BY_METHOD = ("sweep", "pca_components", "seeds", "grouping", "two_level", "tiers", "ipc",
              "predicted_bound_percent", "clusters", "clusters_without_sample", "census_clusters", "features",
              "notes", "photon", "repetitions", "allocation_uses_cost", "iterations", "warnings")  # fmt: skip


class SelectionDocument(Scores, ArrangedPart):
    """A selection. Methods of other packages may add keys of their own."""

    model_config = ConfigDict(extra="allow")
    left_out_unless_set: ClassVar[frozenset[str]] = frozenset(
        {"version", "unit", "labels", "operations", *_BY_METHOD}
    )
    written_first: ClassVar[tuple[str, ...]] = (
        "version", "verdict", "unit", "method", "parameters", "seed", "profile", "weights", "drawing",
        "groups",
    )  # fmt: skip

    version: Annotated[int, says("1; it grows when a key changes its meaning")] = 0
    unit: Annotated[
        Unit,
        says("what groups divide: `launch`, also where it is left out, or `operation`: calls of operators"),
    ] = "launch"
    verdict: Annotated[VerdictEntry | None, says("whether to trust it on another GPU")] = None
    expected_elsewhere: Annotated[
        ExpectedElsewhere | None,
        says("errors to expect on another GPU; `null`: the groups are not known"),
    ] = None
    method: Annotated[str, says("name of the method that made the selection")]
    parameters: Annotated[Parameters, says("every parameter of the method with its value, defaults included")]
    seed: Annotated[int, says("the same input, parameters and seed give the same selection")]
    profile: Annotated[ProfilePart, says("the launches that it was made from")]
    weights: Annotated[WeightsEntry | None, says("which weights are used where; `null`: not said")] = None
    drawing: Annotated[
        Drawing | None,
        says(
            "how representatives were drawn, which intervals on other GPUs need: `rule`: none at random; "
            "`uniform`: within groups; `light_time`: so, but the first of each in proportion to light time; "
            "`proportional`: with replacement in proportion to light time; `root_light_time`: at equal steps "
            "in proportion to its root; `null`: not said"
        ),
    ] = None
    launches_without_time: Annotated[
        int | None,
        says(
            "launches with a light time of 0, which weights by light time count for nothing; `null`: not "
            "drawn at random, or no light run",
            "launches",
        ),
    ] = None
    groups: Annotated[list[GroupEntry], says("the groups, each with its representatives")]
    interval: Annotated[IntervalEntry | None, says("of the projected total")] = None
    interval_reason: Annotated[NoteEntry | None, says("why there is no interval; `null` if there is one")] = (
        None
    )
    score_notes: Annotated[list[NoteEntry], says("what is doubtful in these scores")] = []
    warnings: Annotated[list[NoteEntry] | JsonValue, says("reasons against this selection")] = None
    tiers: Annotated[list[Tier] | JsonValue, says("Sieve: its tiers")] = None
    ipc: Annotated[
        float | JsonValue,
        says("Sieve: weighted harmonic mean of the representatives' IPC; `null`: the cost is not in cycles",
             "instructions / cycle"),
    ] = None  # fmt: skip
    predicted_bound_percent: Annotated[
        float | JsonValue,
        says(
            "STEM+ROOT: error that the draw keeps at `confidence`; `null` for `variant=artifact`", "percent"
        ),
    ] = None
    clusters: Annotated[int | JsonValue, says("STEM+ROOT: as many as `groups` has", "clusters")] = None
    clusters_without_sample: Annotated[
        int | JsonValue,
        says(
            "STEM+ROOT: 0; the artifact's variant takes no sample of launches that cost the same", "clusters"
        ),
    ] = None
    census_clusters: Annotated[
        int | JsonValue, says("STEM+ROOT: those with every launch in the sample", "clusters")
    ] = None
    features: Annotated[list[str] | JsonValue, says("TBPoint: the counters that were used")] = None
    notes: Annotated[list[NoteEntry] | JsonValue, says("TBPoint: what you must know")] = None
    photon: Annotated[PhotonPart | JsonValue, says("Photon: keys that only it has")] = None
    allocation_uses_cost: Annotated[
        bool | JsonValue, says("`stratified`: the cost of every launch was read to decide how many to draw")
    ] = None
    repetitions: Annotated[
        Repetitions | JsonValue, says("random methods with `repetitions=R`: further samples")
    ] = None
    iterations: Annotated[Iterations | JsonValue, says("`single_iteration`: what it found")] = None
    sweep: Annotated[list[SweepEntry] | JsonValue, says("values that the method tried")] = None
    pca_components: Annotated[int | JsonValue, says("PKS: components that PCA kept", "components")] = None
    seeds: Annotated[list[SeedEntry] | JsonValue, says("PKS with `seeds=N`: N seeds from `seed` on")] = None
    grouping: Annotated[Grouping | JsonValue, says("with `mixing=never`: how groups were divided")] = None
    two_level: Annotated[TwoLevels | JsonValue, says("with a light recording: its evidence")] = None
    labels: Annotated[LabelsEntry | None, says("the group of every launch")] = None
    operations: Annotated[
        OperationsEntry | None, says("by operation: everything that the profile calls, in order")
    ] = None


class SelectionInReport(SelectionDocument):
    """A selection as a report carries it."""

    left_out_unless_set: ClassVar[frozenset[str]] = frozenset(
        {*SelectionDocument.left_out_unless_set, "groups_left_out", "note"}
    )

    groups_left_out: Annotated[
        int | None,
        says("groups left out because there are more than 2,000 representatives", "groups"),
    ] = None
    note: Annotated[NoteEntry | None, says("how to get them")] = None
