"""Executors of analyses: processes of this machine, and where the settings say that others are."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import BrokenExecutor
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay_sampling.errors import ParameterError
from assay_sampling.methods import registry
from assay_server.analysis.pipeline import versions
from assay_server.campaigns.analysing import dask_workers
from assay_server.campaigns.analysing.dask_workers import differences
from assay_server.campaigns.analysing.executors import ExecutorApart, WorkerPool
from assay_server.campaigns.analysing.job import submit_analysis
from assay_server.config import ServerSettings
from assay_server.places import analysis_place
from tests.support.server.analysis_lab import HandExecutor
from tests.support.server.executor_contract import ExecutorContract
from tests.support.server.worker_tasks import die_first, wait_for
from tests.support.server.workloads_to_analyse import made_request


@pytest.mark.processes
class TestWorkerPool(ExecutorContract):
    @pytest.fixture
    def executors(self) -> Iterator[WorkerPool]:
        pool = WorkerPool(1)
        yield pool
        pool.end()


@pytest.mark.processes
def test_a_worker_that_dies_beside_another_one_fails_its_own_task_only(tmp_path: Path) -> None:
    pool = WorkerPool(2)
    executor, go = pool(), tmp_path / "go"
    waiting = executor.submit(wait_for, str(go))
    with pytest.raises(BrokenExecutor):
        executor.submit(die_first, 1, str(tmp_path)).result(60)
    assert executor.submit(die_first, 1, str(tmp_path)).result(60) == 2
    assert not waiting.done()
    go.touch()
    assert waiting.result(60) is None
    pool.end()


class _Apart(HandExecutor, ExecutorApart):
    pass


def test_workers_with_memory_of_their_own_take_workloads_that_together_exceed_the_limit(
    tmp_path: Path,
) -> None:
    request = made_request(tmp_path, 2, 10, memory_limit_bytes=1)
    here, apart = HandExecutor(), _Apart()
    submit_analysis(here, request)
    submit_analysis(apart, request)
    assert (len(here.futures), len(apart.futures)) == (1, 2)


FILES = (Path("ca.pem"), Path("cert.pem"), Path("key.pem"))
NO_FILES = (None, None, None)


def test_a_scheduler_is_named_with_or_without_tls() -> None:
    plain = analysis_place("dask://lab:8786", *NO_FILES)
    assert plain is not None
    assert (plain.address, str(plain), plain.tls) == ("tcp://lab:8786", "dask://lab:8786", False)
    safe = analysis_place("dask+tls://[::1]:8786", *FILES)
    assert safe is not None
    assert (safe.address, str(safe), safe.tls) == ("tls://[::1]:8786", "dask+tls://[::1]:8786", True)
    assert analysis_place("", *NO_FILES) is None


@pytest.mark.parametrize(
    ("asked", "files", "cause"),
    [
        ("tcp://lab:8786", NO_FILES, "it does not name a Dask scheduler"),
        ("dask://", NO_FILES, ""),
        ("dask://lab", NO_FILES, ""),
        ("dask://lab:8786", FILES, "files for TLS are given, and this scheduler speaks none"),
        ("dask+tls://lab:8786", NO_FILES, "TLS with Dask needs three files"),
        ("dask+tls://lab:8786", (FILES[0], None, FILES[2]), "TLS with Dask needs three files"),
        ("dask://unix:/run/x", NO_FILES, "Dask opens no Unix socket"),
        ("", FILES, "there is no scheduler to use it for"),
    ],
)
def test_what_names_no_scheduler_is_refused(
    asked: str, files: tuple[Path | None, Path | None, Path | None], cause: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        analysis_place(asked, *files)
    assert cause in caught.value.cause and caught.value.remedy


def test_workers_elsewhere_need_a_folder_that_they_can_find() -> None:
    with pytest.raises(ParameterError, match="that of --state is relative"):
        ServerSettings(state_dir=Path("state"), analysis="dask://127.0.0.1:8786")
    settings = ServerSettings(state_dir=Path("/srv/assay"), analysis="dask://127.0.0.1:8786")
    assert settings.analysis_place is not None


def test_other_releases_are_named_with_what_they_are_instead() -> None:
    here = {"python": "3.11.7", "assay-gpu": "0.1.0", "numpy": None}
    assert differences(here, here) == []
    assert differences({"python": "3.12.1", "assay-gpu": None, "numpy": "2.0"}, here) == [
        "python 3.12.1 instead of 3.11.7", "assay-gpu missing instead of 0.1.0", "numpy 2.0 instead of none"
    ]  # fmt: skip


def test_workers_elsewhere_are_compared_by_all_packages_that_numbers_may_change_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = {"made": ("made-methods", "1.0"), "other": ("other-methods", "2.0")}
    monkeypatch.setattr(registry, "package_of", theirs.get)
    monkeypatch.setattr(registry, "methods_of_others", lambda: tuple(theirs))
    dask = SimpleNamespace(get_versions=_as_dask_says)
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(versions=dask))  # it takes long to load
    monkeypatch.setitem(sys.modules, "distributed.versions", dask)
    compared = dask_workers.releases_here.__wrapped__()
    assert {"scipy", "pydantic", "duckdb", "made-methods", "other-methods"} | {"assay-gpu", *versions()} - {
        "assay"
    } == set(compared)
    assert compared["python"] == platform.python_version()
    assert compared["numpy"] == metadata.version("numpy")
    assert compared["made-methods"] is None


def _as_dask_says(packages: Iterable[str]) -> dict[str, dict[str, str | None]]:
    found = {name: None if name.endswith("-methods") else metadata.version(name) for name in packages}
    return {"packages": {"python": platform.python_version(), **found}}
