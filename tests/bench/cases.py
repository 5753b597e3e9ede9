"""What ``make bench`` measures: cases by section, and the ratios that we promise of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A named case: the title people read, where it is, and launches at full scale.

    A case that ``needs_recording`` is left out, with the reason, where the recordings are not at hand.
    """

    title: str
    module: str
    function: str
    launches: int
    needs_recording: bool = False

    @property
    def key(self) -> tuple[str, int]:
        return self.function, self.launches


@dataclass(frozen=True)
class Section:
    """Cases that stand in one table; the first is what the others are compared with.

    ``alternating``: a run of each case in turn; ``when_named``: measured only if it is asked for by name;
    ``runs``: of each case, at most.
    """

    name: str
    title: str
    cases: tuple[Case, ...]
    alternating: bool = False
    when_named: bool = False
    runs: int = 1_000


@dataclass(frozen=True)
class Promise:
    """A ratio of seconds a launch, ``above`` / ``below``, or of peak memory, and its bound.

    ``inertia`` promises instead that no inertia of ``below`` is above the one of ``above``; ``paired`` takes
    the median of the ratios of seconds of runs that followed one another; ``server_peak_bytes`` and
    ``cpu_seconds`` (of sender and server) are among the extra figures of ingest.
    """

    text: str
    above: Case
    below: Case
    at_least: float | None = None
    at_most: float | None = None
    figure: str = "seconds_per_launch"


_GROUPING, _CLASSIFY, _SELECTION = "tests.bench.grouping", "tests.bench.classify", "tests.bench.selection"
_INGEST, _PEERS, _STREAMING = "tests.bench.ingest", "tests.bench.peers", "tests.bench.streaming"
_FIGURES, _BY_OPERATION = "tests.bench.figures", "tests.bench.by_operation"
_WHOLE_WORKLOAD, _NST = 5_300_000, 1_072_246
DECADES = (100_000, 1_000_000, 10_000_000)

RECORDED = Case("PKS sweep, 1,406 distinct rows", _GROUPING, "assay_recorded", 5_000, True)
RECORDED_PEER = Case("scikit-learn, the same rows", _GROUPING, "scikit_learn_recorded", 5_000, True)
DISTINCT = Case("PKS sweep, all rows distinct", _GROUPING, "assay_distinct", 20_000)
DISTINCT_PEER = Case("scikit-learn, the same rows", _GROUPING, "scikit_learn_distinct", 20_000)
LARGE = Case("PKS sweep, all rows distinct", _GROUPING, "assay_distinct", 180_000)
LARGE_PEER = Case("scikit-learn, the same rows", _GROUPING, "scikit_learn_one_seed", 180_000)

FEW = Case("Assay, 3,000 distinct", _CLASSIFY, "assay_few", _WHOLE_WORKLOAD)
FEW_PEER = Case("scikit-learn predict, 3,000 distinct", _CLASSIFY, "scikit_learn_few", 100_000)
MANY = Case("Assay, 500,000 distinct", _CLASSIFY, "assay_many", _WHOLE_WORKLOAD)
MANY_PEER = Case("scikit-learn predict, 500,000 distinct", _CLASSIFY, "scikit_learn_many", 100_000)

SIEVE = Case("Sieve, columns to weights", _SELECTION, "sieve", _NST)
SIEVE_SORT = Case("one pyarrow sort by kernel and instructions", _SELECTION, "sieve_sort", _NST)
STEM = Case("STEM+ROOT, columns to weights", _SELECTION, "stem", _WHOLE_WORKLOAD)
STEM_SORT = Case("one numpy.lexsort by kernel and duration", _SELECTION, "stem_sort", _WHOLE_WORKLOAD)
BALANCED = Case("balanced, a light run, scored and hashed", _SELECTION, "balanced_whole", 5_000_000)
STEM_OF_LIGHT = Case("STEM+ROOT, the same light run", _SELECTION, "stem_of_light", 5_000_000)
SIEVE_DECADES = tuple(Case(f"Sieve, {n:,}", _SELECTION, "sieve", n) for n in DECADES)
STEM_DECADES = tuple(Case(f"STEM+ROOT, {n:,}", _SELECTION, "stem", n) for n in DECADES)

BY_LAUNCH = Case("`assay select stem TRACE`", _BY_OPERATION, "by_launch", 500_000)
BY_OPERATION = Case("... `--unit operation`", _BY_OPERATION, "by_operation", 500_000)

_READING = "tests.bench.reading"
NSYS = Case("Assay: Nsight Systems SQLite, 3.85 runtime calls a launch", _READING, "nsys_sqlite", 1_000_000)
NSYS_PEER = Case("pandas.read_sql_query, joined and sorted", _READING, "pandas_read_sql", 1_000_000)
KINETO = Case("Assay: launches of a Kineto trace", _READING, "kineto_launches", 150_000)
KINETO_OPERATIONS = Case("... with operators and operations", _READING, "kineto", 150_000)
KINETO_PEER = Case("json.load and pandas, joined and sorted", _READING, "json_to_pandas", 150_000)
NCU = Case("Assay: raw page of Nsight Compute", _READING, "ncu_raw_page", 200_000)
NCU_PEER = Case("pandas.read_csv, the same page", _READING, "pandas_read_csv", 200_000)

PROJECT = tuple(Case(f"PKP over a series, {n:,}", _STREAMING, "project", n) for n in (20_000, 200_000))
INSPECT = tuple(
    Case(f"inspect a recording, {n:,}", _STREAMING, "inspect", n) for n in (1_000_000, 10_000_000)
)

ONE = Case("Assay: agent spool to published Parquet", _INGEST, "assay", 1_000_000)
ONE_PEER = Case("Arrow Flight do_put to the same Parquet", _PEERS, "arrow_flight", 1_000_000)
ONE_TLS = Case("Assay, over TCP with mutual TLS", _INGEST, "assay_tls", 1_000_000)
EIGHT = Case("Assay, 8 agents", _INGEST, "assay_many", 4_000_000)
EIGHT_PEER = Case("Arrow Flight, 8 clients", _PEERS, "arrow_flight_many", 4_000_000)
EIGHT_TLS = Case("Assay, 8 agents, over TCP with mutual TLS", _INGEST, "assay_many_tls", 4_000_000)
FIVE_MILLION = Case("Assay: agent spool to published Parquet", _INGEST, "assay", 5_000_000)
FIFTY_MILLION = Case("Assay: agent spool to published Parquet", _INGEST, "assay", 50_000_000)

_DOWNLOAD = "tests.bench.download"
DOWNLOAD = (
    Case("the Parquet files copied on the server's disk", _DOWNLOAD, "copied", 5_000_000),
    Case("`assay lab fetch`: the files by RPC, checked and durable", _DOWNLOAD, "fetched", 5_000_000),
    Case("`Campaign.records()`: Arrow by RPC, decoded", _DOWNLOAD, "streamed", 5_000_000),
    Case("... two of the columns", _DOWNLOAD, "streamed_columns", 5_000_000),
)

SECTIONS = (
    Section(
        "ingest",
        "Ingest",
        (
            ONE,
            ONE_PEER,
            ONE_TLS,
            EIGHT,
            EIGHT_PEER,
            EIGHT_TLS,
            Case("one launch a gRPC message, one fsync", _PEERS, "one_launch_per_message", 20_000),
        ),
        alternating=True,
    ),
    Section("ingest-memory", "Ingest: memory by launches", (ONE, FIVE_MILLION), runs=1),
    Section(
        "ingest-memory-long",
        "Ingest: memory from 1 to 50 million launches",
        (ONE, FIFTY_MILLION),
        when_named=True,
        runs=1,
    ),
    Section(
        "pks",
        "PKS: k-means for K = 1..20",
        (RECORDED, RECORDED_PEER, DISTINCT, DISTINCT_PEER, LARGE, LARGE_PEER),
    ),
    Section("classify", "Encode and predict, three shared models", (FEW, FEW_PEER, MANY, MANY_PEER)),
    Section(
        "selection",
        "Sieve and STEM+ROOT",
        (
            STEM,
            Case("STEM+ROOT, scored and hashed", _SELECTION, "stem_whole", _WHOLE_WORKLOAD),
            STEM_SORT,
            BALANCED,
            STEM_OF_LIGHT,
            SIEVE,
            Case("Sieve, scored and hashed", _SELECTION, "sieve_whole", _NST),
            SIEVE_SORT,
        ),
    ),
    Section(
        "by-operation",
        "Selecting from a Kineto trace, CPU by launch and by operation",
        (BY_LAUNCH, BY_OPERATION),
        alternating=True,
        runs=3,
    ),
    Section(
        "reading",
        "Reading recordings, CPU seconds",
        (NSYS, NSYS_PEER, NCU, NCU_PEER, KINETO, KINETO_OPERATIONS, KINETO_PEER),
        alternating=True,
        runs=3,
    ),
    Section("decades", "Sieve and STEM+ROOT by size", (*SIEVE_DECADES, *STEM_DECADES)),
    Section("download", "Download of published launches", DOWNLOAD, runs=3),
    Section("streaming", "Streams: ten times the launches", (*PROJECT, *INSPECT)),
    Section(
        "figures",
        "Figures: launches (or workloads) to bins, SVG, the pictures of a page",
        (
            Case("timeline: columns to bins", _FIGURES, "timeline_bins", 5_000_000),
            Case("timeline: columns to SVG", _FIGURES, "timeline_svg", 5_000_000),
            Case("figures of a page of 200 workloads", _FIGURES, "figures_of_report", 200),
        ),
    ),
)

PROMISES = (
    Promise("published ingest against Arrow Flight", ONE_PEER, ONE, at_least=0.5, figure="paired"),
    Promise("the same with 8 agents", EIGHT_PEER, EIGHT, at_least=0.5, figure="paired"),
    Promise("ingest through TLS against a socket", ONE, ONE_TLS, at_least=0.7, figure="paired"),
    Promise("the same with 8 agents", EIGHT, EIGHT_TLS, at_least=0.7, figure="paired"),
    *(
        Promise(
            f"memory of the {who}, {larger.launches:,} / 1,000,000 launches",
            larger,
            ONE,
            at_most=1.3,
            figure=figure,
        )
        for larger in (FIVE_MILLION, FIFTY_MILLION)
        for who, figure in (("server", "server_peak_bytes"), ("agent", "peak_bytes"))
    ),
    Promise("PKS sweep against scikit-learn, 5,000 rows", RECORDED_PEER, RECORDED, at_least=5),
    Promise("PKS sweep against scikit-learn, 20,000 distinct rows", DISTINCT_PEER, DISTINCT, at_least=2),
    Promise("PKS sweep against scikit-learn, 180,000 distinct rows", LARGE_PEER, LARGE, at_least=2),
    Promise(
        "no inertia above the median of ten seeds, 5,000 rows", RECORDED_PEER, RECORDED, figure="inertia"
    ),
    Promise(
        "no inertia above the median of ten seeds, 20,000 rows", DISTINCT_PEER, DISTINCT, figure="inertia"
    ),
    Promise("encode and predict, 3,000 distinct", FEW_PEER, FEW, at_least=20),
    Promise("encode and predict, 500,000 distinct", MANY_PEER, MANY, at_least=20),
    Promise(
        "selecting by operation / by launch, CPU", BY_OPERATION, BY_LAUNCH, at_most=1.3, figure="seconds"
    ),
    Promise("reading an Nsight Systems export / pandas", NSYS, NSYS_PEER, at_most=0.6, figure="seconds"),
    Promise("reading a raw page of Nsight Compute / pandas", NCU, NCU_PEER, at_most=1.5, figure="paired"),
    Promise("reading a Kineto trace / json and pandas", KINETO, KINETO_PEER, at_most=0.8, figure="seconds"),
    Promise("Sieve / one pyarrow sort", SIEVE, SIEVE_SORT, at_most=10),
    Promise("STEM+ROOT / one numpy.lexsort", STEM, STEM_SORT, at_most=6),
    *(
        Promise(f"{larger.title} / {smaller.title}", larger, smaller, at_most=13, figure="seconds")
        for decades in (SIEVE_DECADES, STEM_DECADES)
        for smaller, larger in itertools.pairwise(decades)
    ),
    Promise("memory of PKP, ten times the samples", PROJECT[1], PROJECT[0], at_most=1.3, figure="peak_bytes"),
    Promise(
        "memory of inspect, ten times the launches", INSPECT[1], INSPECT[0], at_most=1.3, figure="peak_bytes"
    ),
)
