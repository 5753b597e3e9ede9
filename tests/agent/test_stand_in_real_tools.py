"""The stand-ins against NVIDIA's own tools, every generation that ``make real-tools`` has unpacked.

No GPU and no driver is needed: only help, listings, imports and complaints are compared.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from assay_virtual.tools.ncu.options import ncu_options
from assay_virtual.tools.nsys.options import export_options, profile_options
from tests.support.agent.nvidia_tools import RealTools
from tests.support.agent.stand_ins import Answer, Bench

pytestmark = pytest.mark.processes


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_ncu_has_the_same_options(nvidia: RealTools, bench: Bench) -> None:
    version = nvidia.ncu_version
    listed = re.findall(r"^  (?:-\w \[ )?--([a-z0-9-]+)", nvidia.ncu("--help").output, re.MULTILINE)
    assert sorted(listed) == sorted(option.name for option in ncu_options(version))
    # docs/nvidia-tools.md, "Kernels that must run together".
    assert not {"communicator", "lockstep-kernel-launch"} & set(listed)


def test_ncu_options_have_the_same_defaults(nvidia: RealTools, bench: Bench) -> None:
    version = nvidia.ncu_version
    shown = nvidia.ncu("--help").output
    real = dict(re.findall(r"^  (?:-\w \[ )?--([a-z0-9-]+)(?: \])? arg \(=([^)]*)\)", shown, re.MULTILINE))
    ours = {o.name: o.default for o in ncu_options(version) if o.default is not None}
    assert ours == real


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bogus", "x"], ["-z"], ["--metrics"], ["--cache-control", "flush", "x"],
        ["--launch-count", "x", "y"],
        ["-c", "1", "-c", "2", "x"], ["--kill", "maybe", "x"], ["--csv"], ["/x"],
        ["--replay-mode", "foo", "x"],
        ["--import", "nosuch.ncu-rep"], ["--query-metrics", "--chips", "nosuch"], ["--page", "nope", "x"],
        ["--log-file", "/nosuch/x.log", "x"], ["--import", "garbage.ncu-rep"], ["-o", "garbage", "/bin/true"],
        ["--print", "x"],
    ],
)  # fmt: skip
def test_ncu_complains_in_the_same_words(
    nvidia: RealTools, bench: Bench, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.folder)
    (bench.folder / "garbage.ncu-rep").write_text("garbage")
    version = nvidia.ncu_version
    real = nvidia.ncu(*arguments)
    ours = bench.ncu(*arguments, ASSAY_VIRTUAL_NCU_VERSION=version)
    assert (ours.status, ours.output, ours.errors) == (real.status, real.output, real.errors)


def test_ncu_lists_our_metrics_for_our_chips(nvidia: RealTools, bench: Bench) -> None:
    chips = bench.ncu("--list-chips").output.strip().split(", ")
    assert set(chips) <= set(nvidia.ncu("--list-chips").output.strip().split(", "))
    arguments = ("--query-metrics", "--chips", ",".join(chips), "--csv")
    version = nvidia.ncu_version
    listing = bench.ncu(*arguments, ASSAY_VIRTUAL_NCU_VERSION=version)
    real, ours = (
        {row[0]: row for row in csv.reader(io.StringIO(text))}
        for text in (nvidia.ncu(*arguments).output, listing.output)
    )
    assert ours["Metric name"] == real["Metric name"]
    unlisted = {name for name in ours if name.startswith("sass__")}  # no version lists these
    for name in ours.keys() - unlisted:
        assert ours[name][4:] == real[name][4:], name


def test_ncu_prints_numbers_and_units_alike(nvidia: RealTools, bench: Bench, shared_data: Path) -> None:
    report = shared_data / "ncu" / "rtx3070_daxpy_3_kernels.ncu-rep"
    for style in (["--print-units", "base"], [], ["--print-fp"], ["--print-units", "base", "--print-fp"]):
        real = nvidia.ncu("--import", str(report), "--csv", "--page", "raw", *style)
        ours = bench.ncu("--csv", "--page", "raw", *style, bench.workload,
                         ASSAY_VIRTUAL_NCU_VERSION=nvidia.ncu_version)  # fmt: skip
        pages = [list(csv.reader(io.StringIO(a.output[a.output.index('"ID"') :]))) for a in (real, ours)]
        forms = [
            {name: re.sub(r"\d+", "9", page[2][i]) for i, name in enumerate(page[0]) if "__" in name}
            for page in pages
        ]
        # Scaled values depend on their size; the form of all others does not, but for whole numbers.
        common = forms[0].keys() & forms[1].keys() - {"launch__waves_per_multiprocessor"}
        whole = {name for name in common if forms[0][name].startswith("9") and name.startswith("launch__")}
        assert len(whole) > 12
        assert {name: forms[1][name] for name in whole} == {name: forms[0][name] for name in whole}


def test_nsys_has_the_same_options(nvidia: RealTools, bench: Bench) -> None:
    version = nvidia.nsys_version
    for command, options in (("profile", profile_options(version)), ("export", export_options(version))):
        shown = nvidia.nsys(command, "--help").output
        listed = set(re.findall(r"^\t(?:-\w, )?--([a-z0-9-]+)", shown, re.MULTILINE))
        listed -= {"nvtx-domain-"}  # two options in one line
        assert listed == {option.name for option in options} - {"nvtx-domain-include", "nvtx-domain-exclude"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["profile", "--bogus", "x"], ["profile", "--cuda-graph-trace=foo", "x"],
        ["profile", "-f", "maybe", "x"],
        ["profile", "--sample=wrong", "x"], ["profile", "--cuda-flush-interval=x", "x"], ["profile"],
        ["profile", "-o", "a", "-o", "b", "x"], ["profile", "/x"], ["export", "-t", "jsonlines", "x"],
        ["export"], ["export", "-t", "sqlite", "nosuch.nsys-rep"], ["export", "-f", "maybe", "x"],
    ],
)  # fmt: skip
def test_nsys_complains_in_the_same_words(nvidia: RealTools, bench: Bench, arguments: list[str]) -> None:
    version = nvidia.nsys_version
    real = nvidia.nsys(*arguments)
    ours = bench.nsys(*arguments, ASSAY_VIRTUAL_NSYS_VERSION=version)
    assert (ours.status, ours.errors) == (real.status, real.errors)


PROGRAMS = [
    ["/bin/true"], ["/bin/sh", "-c", "echo said; exit 7"], ["/bin/sh", "-c", "kill -9 $$"],
    ["/bin/sh", "-c", "kill -11 $$"], ["/bin/sh", "-c", "/bin/sh -c 'exit 3'"],
]  # fmt: skip
NCU_SETTINGS = [
    [], ["--check-exit-code", "no"], ["--log-file", "x.log"], ["--csv"],
    ["--target-processes", "all", "--metrics", "smsp__inst_executed.sum", "-f", "-o", "x.ncu-rep"],
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=["true", "exit", "kill", "fault", "child"])
@pytest.mark.parametrize("settings", NCU_SETTINGS, ids=["plain", "unchecked", "log", "csv", "report"])
def test_ncu_ends_alike_around_programs_without_cuda(
    nvidia: RealTools,
    bench: Bench,
    program: list[str],
    settings: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(bench.folder)
    log, report = bench.folder / "x.log", bench.folder / "x.ncu-rep"

    def outcome(answer: Answer) -> tuple[object, ...]:
        written = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        # Whether 2022.3 says this of a program that ends at once is a matter of its timing.
        said = [line for line in [*answer.lines("=="), "log:", *written] if "terminated before" not in line]
        return answer.status, said, report.exists()

    version = nvidia.ncu_version
    real = outcome(nvidia.ncu(*settings, *program, driver=True))
    assert outcome(bench.ncu(*settings, *program, ASSAY_VIRTUAL_NCU_VERSION=version)) == real


@pytest.mark.parametrize("program", PROGRAMS, ids=["true", "exit", "kill", "fault", "child"])
def test_nsys_ends_alike_around_programs_without_cuda(
    nvidia: RealTools, bench: Bench, program: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.folder)
    report = bench.folder / "x.nsys-rep"

    def outcome(answer: Answer) -> tuple[object, ...]:
        made = report.exists()
        report.unlink(missing_ok=True)
        own = [re.sub(r"nsys-report-\w+", "nsys-report-0", line) for line in answer.output.splitlines()]
        kept = [line for line in own if line.strip() and not line.startswith(("[1/1]", "said"))]
        return answer.status, kept, answer.errors, made

    version = nvidia.nsys_version
    arguments = ("profile", "-t", "cuda,nvtx", "--sample=none", "--cpuctxsw=none", "-f", "true", "-o", "x")
    real = outcome(nsys_in_time(nvidia, *arguments, *program))
    assert outcome(bench.nsys(*arguments, *program, ASSAY_VIRTUAL_NSYS_VERSION=version)) == real


def nsys_in_time(nvidia: RealTools, *arguments: str) -> Answer:
    """What nsys ends with if it begins to wait for its program before that has ended.

    On a busy machine 2022.4.2 loses this race: it ends with 1 and an exception of ProcessWaiter (sem_open).
    """
    for _ in range(20):
        answer = nvidia.nsys(*arguments)
        if not (answer.status == 1 and "ProcessWaiter" in answer.errors and "sem_open" in answer.errors):
            return answer
    pytest.fail(f"nsys never waited for its program in time: {answer.errors}")
