"""What ``assay metrics`` prints, given to NVIDIA's own tools as far as they go without a GPU.

ncu parses its options, starts the program and says that no kernels were profiled; an option or a value that
it does not know would be another message. What a GPU would have given its import is a report of another box.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.ncu.preflight import CHIPS
from assay_client.cli.main import main
from assay_sampling.methods.registry import samplers
from assay_sampling.nsight.tool import Program, ToolVersion, options_since, tool_of_release
from assay_sampling.readers.opening import read_launches
from assay_sampling.running.gpu_names import compute_capability_of
from tests.support.agent.nvidia_tools import RealTools
from tests.support.named_gpus import gpus_of_the_docs

pytestmark = pytest.mark.processes

Lines = tuple[tuple[str, ...], ...]


def measured_by(nvidia: RealTools) -> list[str]:
    """GPUs of the docs that this generation knows."""
    chips = nvidia.ncu("--list-chips").output
    return [gpu for gpu in gpus_of_the_docs() if chip_of(gpu) in chips]


def chip_of(gpu: str) -> str:
    return CHIPS.get(compute_capability_of(gpu), ("none",))[0]


def printed(capfd: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capfd.readouterr()
    code = main(["metrics", *arguments, "--json", "--", "/bin/true"])
    shown = capfd.readouterr()
    assert code == 0, shown.err
    document: dict[str, Any] = json.loads(shown.out)
    return document


def every_document(nvidia: RealTools, capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """For every method and GPU with the release named; for each kind of GPU without it, and of a window."""
    documents = []
    named = ("--tool-version", nvidia.ncu_version)
    for gpu in measured_by(nvidia):
        documents += [printed(capfd, method, "--gpu", gpu, *named) for method in samplers()]
    for gpu in {chip_of(gpu): gpu for gpu in measured_by(nvidia)}.values():
        documents += [printed(capfd, method, "--gpu", gpu) for method in samplers()]
        documents.append(printed(capfd, "pks", "--gpu", gpu, "--first", "100", "--skip", "7"))
        documents.append(printed(capfd, "tbpoint", "--gpu", gpu, "-p", "memory=requests"))
    assert len(documents) > 100
    return documents


def distinct(documents: list[dict[str, Any]], program: str, *, imports: bool = False) -> Lines:
    """The command lines of a program, each once; of ncu either those that profile or those that import."""
    lines = [tuple(c["argv"]) for d in documents for c in d["commands"] if c["argv"][0] == program]
    return tuple(dict.fromkeys(line for line in lines if ("--import" in line) == imports))


def test_ncu_and_nsys_accept_what_is_printed_for_every_method_and_gpu(
    nvidia: RealTools, tmp_path: Path, shared_data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    documents = every_document(nvidia, capfd)
    profiles = distinct(documents, "ncu")
    assert len(profiles) >= 5
    for _, *arguments in profiles:
        told = nvidia.ncu(*arguments, driver=True)
        assert "No kernels were profiled" in told.output, (arguments, told)
        assert "==ERROR==" not in told.output + told.errors, (arguments, told)
    shutil.copy(shared_data / "ncu" / "rtx3070_vectoradd_1_kernel.ncu-rep", tmp_path / "counters.ncu-rep")
    imports = distinct(documents, "ncu", imports=True)
    for _, *arguments in imports:
        (tmp_path / "counters.csv").write_text(nvidia.ncu(*arguments).output)
        launches = read_launches(tmp_path / "counters.csv")
        assert launches.column("cycles_gpc_max").tolist() == [4587]
    traces = distinct(documents, "nsys")
    assert [line[1] for line in traces] == ["profile", "export"]
    for _, *arguments in traces:
        assert nvidia.nsys(*arguments).status == 0
    with sqlite3.connect(tmp_path / "light.sqlite") as database:
        assert database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 5
    database.close()


def test_every_metric_that_is_printed_is_listed_for_the_gpu(
    nvidia: RealTools, capfd: pytest.CaptureFixture[str]
) -> None:
    listed: dict[str, set[str]] = {}
    version = nvidia.ncu_version
    for gpu in measured_by(nvidia):
        known = listed.setdefault(chip_of(gpu), set()) or nvidia.metric_names(chip_of(gpu))
        listed[chip_of(gpu)] = known
        for method in samplers():
            document = printed(capfd, method, "--gpu", gpu, "--tool-version", version)
            named = [c["metric"] for c in document["counters"] if not c["metric"].startswith("launch__")]
            assert [name for name in named if name.partition(".")[0] not in known] == []
    assert len(listed) >= 5


@pytest.mark.parametrize(("program", "helps"), [("ncu", ("--help",)), ("nsys", ("profile", "--help"))])
def test_the_table_of_releases_is_what_the_tools_list(
    nvidia: RealTools, tmp_path: Path, program: Program, helps: tuple[str, ...]
) -> None:
    real: ToolVersion = ToolBox().tool(program, helps, nvidia.environment(), tmp_path)
    table = tool_of_release(program, real.version)
    assert [option for option in table.options if not real.has(option)] == []
    absent = set(options_since(program)) - set(table.options)
    assert [option for option in absent if real.has(option)] == []
    for option, words in table.options.items():
        assert words <= real.options[option]
    if program == "ncu":
        assert real.offers("--clock-control", "boost") == table.offers("--clock-control", "boost")
