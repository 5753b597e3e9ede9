"""The folder of a launch on a design: what its process reads and writes, and its result, keyed by hashes.

    DESIGN/configuration/          the configuration's files, as they were when the design was begun
    DESIGN/launch-N/               (launch-N-tail, launch-N-whole: after a warm-up; launch-N-waves,
                                   launch-N-tail-waves: until that rule stopped it)
        .lock                      held as long as a process of the launch runs, on whichever machine
        kernelslist.g              its list; links to the trace and the configuration beside it
        output.log                 what the simulator prints
        gpgpusim_visualizer__*     its interval log
        result.json                the numbers, once the launch has ended well
        failure.json               why it did not

A result counts only with its key: hashes of simulator, configuration, options, trace and the rule that stops
it. It is written last, in one step, so a folder without it is simulated again from the start.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ValidationError

from assay_client.files import link_to, write_atomically
from assay_client.simulating.designs import Design
from assay_core.files.durable import storage_errors
from assay_sampling.documents.base import Part, says
from assay_sampling.documents.designs import EarlyStop, LaunchNumbers, SimulationFailure, WarmUp
from assay_sampling.errors import RefusedError
from assay_sampling.files.reading import reading
from assay_sampling.handover.isolated import IsolatedLaunch

_FREE = "free space there, or correct its permissions; the same command then goes on"


class LaunchResult(Part):
    """What a launch's folder holds once it is simulated."""

    key: Annotated[dict[str, str], says("hashes of what was simulated, by what they are of")]
    numbers: Annotated[LaunchNumbers, says("what the simulator counted")]


@dataclass(frozen=True)
class LaunchFolder:
    """The folder of one launch on one design, and the key of what is to be simulated there."""

    path: Path
    design: Design
    launch: IsolatedLaunch
    key: Mapping[str, str]

    @property
    def name(self) -> str:
        """Design and launch, for people."""
        return f"{self.design.name}, launch {self.launch.launch + 1}"

    @property
    def lock(self) -> Path:
        """The file that whoever simulates the launch has locked."""
        return self.path / ".lock"

    @property
    def log(self) -> Path:
        """The simulator's standard output."""
        return self.path / "output.log"

    @property
    def intervals(self) -> Path:
        """The simulator's interval log, which it names by the date, whatever -visualizer_outputfile says;
        until it has begun there is no file of this name."""
        written = self.path.glob("gpgpusim_visualizer__*.log.gz")
        return next(written, self.path / "gpgpusim_visualizer__.log.gz")

    def result(self) -> LaunchNumbers | None:
        """The numbers of this launch, if it was simulated; raises RefusedError for those of another
        simulator, configuration or trace."""
        launch_result = self.any_result()
        if launch_result is None:
            return None
        differs = [what for what, value in self.key.items() if launch_result.key.get(what) != value]
        if differs:
            raise RefusedError(
                str(self.path),
                f"it holds this launch simulated with another {' and '.join(differs)}",
                "give the design another name, name another folder with -o, or simulate it anew: --force",
            )
        return launch_result.numbers

    def any_result(self) -> LaunchResult | None:
        """What is kept there, whatever its key; None if nothing can be read."""
        path = self.path / "result.json"
        if not path.is_file():
            return None
        with reading(path):
            text = path.read_bytes()
        try:
            return LaunchResult.model_validate_json(text)
        except ValidationError:
            return None  # it is simulated again

    def prepare(self) -> None:
        """Empty the folder, and put into it what a process reads; raises StorageError, and InputError where
        the trace to replay cannot be read."""
        with storage_errors(self.path, _FREE):
            self.path.mkdir(parents=True, exist_ok=True)
            for entry in self.path.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                elif entry != self.lock:
                    entry.unlink()
        for name, _ in self.design.files:
            link_to(self.path / name, Path("..") / "configuration" / name)
        link_to(self.path / self.launch.trace.name, self.launch.trace.resolve())
        if self.launch.replay is not None:
            write_atomically(self.path / self.launch.replay.name, self.launch.replay.pieces())
        write_atomically(self.path / "kernelslist.g", "".join(f"{line}\n" for line in self.launch.lines))

    def keep(self, numbers: LaunchNumbers) -> None:
        """Write the result, last; what was replayed is not needed any more."""
        self._write("result.json", LaunchResult(key=dict(self.key), numbers=numbers))
        self._forget_replay()

    def keep_failure(self, failure: SimulationFailure) -> None:
        """Write why the launch was not simulated."""
        self._write("failure.json", failure)
        self._forget_replay()

    def _write(self, name: str, document: Part) -> None:
        write_atomically(self.path / name, json.dumps(document.to_dict(), indent=2) + "\n")

    def _forget_replay(self) -> None:
        if self.launch.replay is not None:
            with storage_errors(self.path, _FREE):
                (self.path / self.launch.replay.name).unlink(missing_ok=True)


def folder_name(launch: IsolatedLaunch, warm_up: WarmUp, stop: EarlyStop) -> str:
    """The name of a launch's folder; a launch before which nothing is replayed is cold in any case."""
    warmed = "" if launch.replay is None else f"-{warm_up}"
    return f"launch-{launch.launch + 1}{warmed}" + ("" if stop == "none" else f"-{stop}")


def copy_configuration(folder: Path, design: Design) -> None:
    """Keep the configuration's files beside the launches of a design; raises StorageError."""
    for name, path in design.files:
        with reading(path):
            text = path.read_bytes()
        write_atomically(folder / "configuration" / name, text)


def key_of(
    simulator: str, design: Design, configuration: str, launch: IsolatedLaunch, *, traces: str, stop: str
) -> dict[str, str]:
    """The key of a launch.

    ``simulator``, ``configuration`` and ``traces`` are hashes of their files (:func:`read_by` names those of
    traces), ``stop`` is the rule that stops it with its parameters.
    """
    blocks = None if launch.replay is None else launch.replay.last_blocks
    options = json.dumps([*design.completed, *design.options])
    listed = json.dumps([launch.lines, blocks])
    return {
        "simulator": simulator,
        "configuration": configuration,
        "options": hashlib.sha256(options.encode()).hexdigest(),
        "trace": hashlib.sha256((traces + listed).encode()).hexdigest(),
        "rule that stops it": hashlib.sha256(stop.encode()).hexdigest(),
    }


def read_by(launch: IsolatedLaunch) -> list[Path]:
    """The traces that the process of a launch reads."""
    return [launch.trace, *([] if launch.replay is None else [launch.replay.trace])]
