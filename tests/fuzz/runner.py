"""Makes mutated inputs, has them read by a worker process, and tells which of them fail.

An input fails that ends in an untyped error, takes more than 20 s, more than 1 GiB, or ends the process.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import seeds
from tests.fuzz.mutations import compressed
from tests.fuzz.targets import TARGETS

MOST_SECONDS = 20.0
MOST_BYTES = 1 << 30
_ROOT = Path(__file__).parents[2]
_COMPRESSED_SHARE = 0.12


@dataclass(frozen=True)
class Failed:
    """An input that failed; target, seed and number make it again."""

    target: str
    seed: int
    number: int
    why: str

    def command(self) -> str:
        return f"python -m tests.fuzz --target {self.target} --seed {self.seed} --only {self.number}"


@dataclass
class Tally:
    """How the inputs of a target ended."""

    outcomes: Counter[str] = field(default_factory=Counter)
    most_seconds: float = 0.0
    most_bytes: int = 0


def make_input(target: str, seed: int, number: int, folder: Path, wholes: Sequence[seeds.Seed]) -> Path:
    """Write the input of that number into an empty folder; its path.

    The first numbers, as many as there are whole inputs, are these as they are.
    """
    random, kind = Random(f"{seed} {target} {number}"), TARGETS[target]
    whole = wholes[number] if number < len(wholes) else random.choice(list(wholes))
    if isinstance(whole, dict):
        changed = random.choice(sorted(whole)) if number >= len(wholes) else ""
        path = folder / "tables"
        path.mkdir()
        for name, content in whole.items():
            (path / name).write_bytes(kind.mutate(content, random) if name == changed else content)
        return path
    path = folder / "input"
    if number < len(wholes):
        path.write_bytes(whole)
        return path
    data = kind.mutate(whole, random)
    if kind.compressions and random.random() < _COMPRESSED_SHARE:
        data = compressed(data, random, kind.compressions)
    path.write_bytes(data)
    return path


class Worker:
    """The process that reads, started again when an input ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, target: str, path: Path) -> dict[str, Any]:
        process = self._process = self._process or _started()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps([target, str(path)]).encode() + b"\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            # The first answer waits for the imports too.
            ready = selector.select(MOST_SECONDS + 40.0)
        line = process.stdout.readline() if ready else b""
        if line:
            return dict(json.loads(line))
        self.close()
        why = "it ended the process" if ready else f"no answer in {MOST_SECONDS:.0f} s"
        return {"outcome": "untyped", "error": why, "seconds": 0.0, "peak_bytes": 0}

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _started() -> subprocess.Popen[bytes]:
    # One memory pool that gives back what it took, so that peaks are those of the input at hand.
    variables = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1",
                 "OPENBLAS_NUM_THREADS": "1", "ARROW_NUM_THREADS": "2"}  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.worker"],
        cwd=_ROOT, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip


def fuzz(
    worker: Worker, target: str, seed: int, numbers: Sequence[int], tally: Tally, *, keep: Path | None
) -> Iterator[Failed]:
    """Feed the inputs of the given numbers; yields those that fail, which are kept in ``keep``."""
    wholes = TARGETS[target].seeds()
    profile = seeds.kineto()[0]
    assert isinstance(profile, bytes)
    for number in numbers:
        with tempfile.TemporaryDirectory(prefix="assay-fuzz-") as place:
            folder = Path(place)
            (folder / "profile.json").write_bytes(profile)
            path = make_input(target, seed, number, folder, wholes)
            answer = worker.read(target, path)
            tally.outcomes[answer["outcome"]] += 1
            tally.most_seconds = max(tally.most_seconds, answer["seconds"])
            tally.most_bytes = max(tally.most_bytes, answer["peak_bytes"])
            why = _fault(answer)
            if number < len(wholes) and answer["outcome"] != "read":
                why = why or f"this whole input must be read: {answer['error']}"
            if why:
                if keep is not None:
                    _keep(path, keep / f"{target}-{seed}-{number}")
                yield Failed(target, seed, number, why)


def _fault(answer: dict[str, Any]) -> str:
    if answer["outcome"] == "untyped":
        return str(answer["error"])
    if answer["seconds"] > MOST_SECONDS:
        return f"it took {answer['seconds']:.1f} s: {answer['error']}"
    if answer["peak_bytes"] > MOST_BYTES:
        return f"it took {answer['peak_bytes']:,} bytes: {answer['error']}"
    return ""


def _keep(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, target, dirs_exist_ok=True)
    else:
        shutil.copyfile(path, target)
