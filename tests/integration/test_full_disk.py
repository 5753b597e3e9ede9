"""A disk that is full, for real: a small file system of its own under the state of an agent."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay_client.api import Client
from tests.support.integration.harness import lab, wait_until
from tests.support.integration.made_trace import campaign

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

_MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB in memory; only root may mount one, and not in every container."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "assay-test", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no program 'mount' here")
    if mounted.returncode:
        pytest.skip(f"no file system may be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, leave_bytes: int = 0) -> Path:
    """Take all of the disk but so much."""
    path = folder / "of-somebody-else"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
        if leave_bytes:
            file.truncate(file.tell() - leave_bytes)
    return path


def test_a_full_disk_costs_no_run_and_nothing_that_was_spooled(tmp_path: Path, small_disk: Path) -> None:
    """The disk fills up under an agent, first but for a little, then wholly, and is mended later."""
    with lab() as laboratory:
        laboratory.start_server()
        state = small_disk / "agent"
        state.mkdir(mode=0o700)
        (laboratory.root / "full").symlink_to(state)
        laboratory.start_agent("full", "--minimum-free", str(_MIB), "--spool-limit", str(4 * _MIB))
        wait_until((state / "spool").exists, "the agent's start")
        somebody = fill(small_disk, leave_bytes=64 * 1024)
        campaign_id = laboratory.submit(campaign(tmp_path, 4))

        def resting() -> list[dict[str, Any]]:
            with Client(laboratory.address) as client:
                found: list[dict[str, Any]] = client.overview()["resting"]
            return found

        rests: list[dict[str, Any]] = []
        # A rest ends by itself, so what is checked is what was seen.
        wait_until(lambda: bool(rests.extend(resting()) or rests), "a rest")
        assert rests[0]["failure"]["failure_class"] == "disk_full"
        somebody.unlink()
        fill(small_disk)
        # Not even the folder of an attempt can be made now.
        wait_until(lambda: any(rest["failures"] >= 2 for rest in resting()), "a second failure", 90)
        with Client(laboratory.address) as client:
            states = {run["state"] for run in client.status(campaign_id)["runs"]}
        assert states <= {"waiting", "running"}, "after a rest the slot tries again for a moment"
        (small_disk / "of-somebody-else").unlink()
        laboratory.stop("full")
        laboratory.start_agent("full", "--minimum-free", str(_MIB), "--spool-limit", str(4 * _MIB))
        assert laboratory.wait_for(campaign_id) == "done"


def test_what_was_sealed_before_the_disk_was_full_is_sent_and_published(
    tmp_path: Path, small_disk: Path
) -> None:
    with lab() as laboratory:
        laboratory.start_server()
        state = small_disk / "agent"
        state.mkdir(mode=0o700)
        (laboratory.root / "full").symlink_to(state)
        options = ("--minimum-free", str(_MIB), "--spool-limit", str(4 * _MIB))
        laboratory.start_agent("full", *options)
        campaign_id = laboratory.submit(campaign(tmp_path, 30))
        wait_until(lambda: any((state / "spool").glob("*/seal.json")), "a sealed attempt")
        laboratory.kill("server")
        laboratory.kill("full")
        sealed = sorted(path.parent.name for path in (state / "spool").glob("*/seal.json"))
        fill(small_disk)
        laboratory.start_server()
        laboratory.start_agent("full", *options)
        with Client(laboratory.address) as client:
            wait_until(
                lambda: all(
                    client.run(name.rsplit("-", 2)[0])["attempts"][-1]["state"] == "published"
                    for name in sealed
                ),
                f"the publishing of {sealed}", 60,
            )  # fmt: skip
            states = {run["state"] for run in client.status(campaign_id)["runs"]}
            assert "failed" not in states
        (small_disk / "of-somebody-else").unlink()
        assert laboratory.wait_for(campaign_id, 120) == "done"
