"""Designs of a GPU to simulate: ``NAME=CONFIG[:OPTIONS]``, and the files of a configuration."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_client.simulating.installation import Simulator, digest_of
from assay_sampling.errors import InputError, ParameterError
from assay_sampling.files.reading import reading
from assay_sampling.simulators.accel_sim.config import SimulatorConfig

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LATENCIES = re.compile(r"^\s*-ptx_opcode_latency_int\s+(\d+(?:,\d+)*)\s*(?:#.*)?$", re.MULTILINE)
_LATENCY_VALUES = 6
_COMMENT = re.compile(r"#.*")
_OPTION = re.compile(r"(?<!\S)-([A-Za-z]\w*)\s+(\S+)")
# Options that decide what a simulation leaves behind: the driver sets them.
_OURS = frozenset({"-trace", "-config", "-visualizer_outputfile"})
_EXAMPLE = "write --design base=SM7_QV100, or half=SM7_QV100:'-gpgpu_n_clusters 40'"


@dataclass(frozen=True)
class Design:
    """A design: its configuration's files, and options of the simulator on top.

    ``files`` are what a process finds in its own folder: ``gpgpusim.config``, ``trace.config``, and those
    that they name. ``completed`` are options that the configuration lacks and the simulator reads.
    """

    name: str
    configuration: Path
    options: tuple[str, ...]
    files: tuple[tuple[str, Path], ...]
    completed: tuple[str, ...] = ()

    def digest(self) -> str:
        """A hash of the files; raises InputError where one cannot be read."""
        return digest_of([path for _, path in self.files])

    def gpu(self) -> SimulatorConfig:
        """The simulated GPU; raises InputError where the configuration cannot be read."""
        path = dict(self.files)["gpgpusim.config"]
        with reading(path):
            text = path.read_bytes().decode(errors="replace")
        words = " ".join(self.options)
        return SimulatorConfig.of_options(dict(_OPTION.findall(f"{_COMMENT.sub('', text)}\n{words}")))


def parse_designs(texts: Sequence[str], simulator: Simulator) -> list[Design]:
    """The designs of ``--design``; raises ParameterError for one that cannot be, or none at all."""
    if not texts:
        names = ", ".join(simulator.configurations()) or "none"
        raise ParameterError("--design", f"no design is given; the simulator comes with {names}", _EXAMPLE)
    designs: dict[str, Design] = {}
    for text in texts:
        name, separator, rest = text.partition("=")
        if not separator or not _NAME.fullmatch(name) or not rest:
            raise ParameterError("--design", f"{text!r} is not of the form NAME=CONFIG[:OPTIONS]", _EXAMPLE)
        if name in designs:
            raise ParameterError("--design", f"{name!r} is given twice", "give each design its own name")
        configuration, _, options = rest.partition(":")
        designs[name] = _design(name, configuration, _options(name, options), simulator)
    return list(designs.values())


def _options(name: str, text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ParameterError(
            "--design", f"the options of {name!r} cannot be read ({error})", _EXAMPLE
        ) from error
    if words and not words[0].startswith("-"):
        raise ParameterError("--design", f"{words[0]!r} is not an option of the simulator", _EXAMPLE)
    if ours := sorted(_OURS & set(words)):
        raise ParameterError("--design", f"{ours[0]} is not an option of a design", "leave it out")
    return words


def _design(name: str, configuration: str, options: tuple[str, ...], simulator: Simulator) -> Design:
    there = simulator.configuration(configuration)
    folder = Path(configuration)
    if there is None and (folder / "gpgpusim.config").is_file():
        of_traces = folder / "trace.config"
        if not of_traces.is_file():
            raise ParameterError(
                "--design", f"{folder} has no trace.config", "copy one from the simulator's configurations"
            )
        there = folder / "gpgpusim.config", of_traces
    if there is None:
        names = ", ".join(simulator.configurations()) or "none"
        raise ParameterError(
            "--design",
            f"there is no configuration {configuration!r}; the simulator comes with {names}",
            "name one of them, or a folder with gpgpusim.config and trace.config",
        )
    main, of_traces = there
    beside = sorted(path for suffix in ("*.icnt", "*.xml") for path in main.parent.glob(suffix))
    files = [("gpgpusim.config", main), ("trace.config", of_traces), *((path.name, path) for path in beside)]
    return Design(
        name,
        main.parent.resolve(),
        options,
        tuple((name, path.resolve()) for name, path in files),
        () if "-ptx_opcode_latency_int" in options else _completed(main),
    )


def _completed(path: Path) -> tuple[str, ...]:
    """The sixth latency, where a configuration gives five: what the memory holds would be taken for it, and
    one run asked for 20 GB because of it. It only sets how deep a pipeline object is."""
    with reading(path):
        text = path.read_bytes().decode(errors="replace")
    if "\0" in text:
        raise InputError(path, "it is not a configuration of GPGPU-Sim", "name a folder with gpgpusim.config")
    matches = _LATENCIES.findall(text)
    values = matches[-1].split(",") if matches else []
    if not matches or len(values) >= _LATENCY_VALUES:
        return ()
    return "-ptx_opcode_latency_int", ",".join([*values, *values[-1:] * (_LATENCY_VALUES - len(values))])
