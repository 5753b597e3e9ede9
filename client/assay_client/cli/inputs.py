"""Checks of the files that verbs read, with errors in the words of the verb."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_sampling.errors import AssayError, InputError, ParameterError
from assay_sampling.methods.registry import samplers
from assay_sampling.readers.known_files import known_file_at
from assay_sampling.readers.opening import what_is_this


@dataclass(frozen=True)
class Kind:
    """A kind of file. ``words`` is the remedy; readers report folders and empty files better. ``accepts`` are
    the codes of :mod:`assay_sampling.readers.known_files` that the verb reads there."""

    words: str
    accepts: frozenset[str]
    is_recording: bool = False


RECORDING = Kind(
    "name a recording of Nsight Compute, Nsight Systems, Kineto or Accel-Sim ('assay docs recordings' has "
    "the formats)",
    frozenset({"recording", "simulator_output"}),
    is_recording=True,
)
SELECTION = Kind(
    "name a selection, as it is written by: assay select METHOD FILE -o selection.json",
    frozenset({"selection", "weights"}),
)
SIMULATION = Kind(
    "give the standard output of Accel-Sim, its interval log, or a CSV with cycles,instructions,ctas",
    frozenset({"simulator_output", "intervals", "series"}),
)
SIMULATION_OR_TRACES = Kind(
    "give the standard output of Accel-Sim with the times of thread blocks, or the traces of its launches",
    frozenset({"simulator_output", "kernels_list", "trace"}),
)
BLOCK_TRACES = Kind(
    "give the kernelslist.g of the launches that were simulated, or their kernel-N.traceg",
    frozenset({"kernels_list", "trace"}),
)
INTERVAL_LOG = Kind(
    "give the interval log of the same run of Accel-Sim (gpgpusim_visualizer.log.gz)",
    frozenset({"intervals"}),
)
PKA_ROW = Kind(
    "name what was written by: assay pka-table row SELECTION SIMULATION -o FILE", frozenset({"pka_rows"})
)
SIMULATOR_OUTPUT = Kind("give the standard output of Accel-Sim", frozenset({"simulator_output"}))
SCALING_TABLE = Kind(
    "give a CSV with the columns workload,size,size_unit,ipc,mpki,f_mem and a line for each size",
    frozenset({"scaling_table"}),
)
TRACES = Kind(
    "give the kernelslist.g of an Accel-Sim trace, or its kernel-N.traceg in order of launch",
    frozenset({"kernels_list", "trace"}),
)
WARM_OR_FLUSHED = Kind(
    "give two recordings with counters, or two standard outputs of Accel-Sim",
    frozenset({"recording", "simulator_output"}),
)


def require(kind: Kind, *paths: Path | None) -> None:
    """Raise InputError for a path that is not a file, is empty, or is a file of another kind: which it is,
    and which verbs read it. For several such paths it raises an ExceptionGroup of these."""
    raise_together([error for path in _present(paths) if (error := _error_of(path, kind)) is not None])


def raise_together(errors: Sequence[AssayError]) -> None:
    """Raise the only error, or several as an ExceptionGroup; ``main`` prints each."""
    if len(errors) > 1:
        raise ExceptionGroup("several errors", list(errors))
    if errors:
        raise errors[0]


def _error_of(path: Path, kind: Kind) -> InputError | None:
    cause = _fault(path, kind)
    if cause:
        return InputError(path, cause, kind.words)
    # A recording's reader looks for itself, and may have to read far.
    file_kind = known_file_at(path) if kind.is_recording else what_is_this(path)
    if file_kind is not None and file_kind.code not in kind.accepts:
        return InputError(path, file_kind.explained, kind.words)
    return None


def _present(paths: Iterable[Path | None]) -> Iterable[Path]:
    return (path for path in paths if path is not None)


def _fault(path: Path, kind: Kind) -> str:
    try:
        if not path.exists():
            return "it is a link that leads nowhere" if path.is_symlink() else "there is no such file"
        if path.is_dir():
            return "" if kind.is_recording else "it is a directory"
        if not path.is_file():
            return ""  # a pipe: looking into it would take away what its reader needs
        with path.open("rb") as file:
            first = file.read(1)
    except (OSError, ValueError) as error:
        return f"it cannot be read ({getattr(error, 'strerror', None) or error})"
    return "" if first or kind.is_recording else "it is empty"


def method_and_files(verb: str, first: str | None, others: Sequence[Path]) -> tuple[str | None, list[Path]]:
    """The method, None where none is named, and the files of a verb whose method comes first.

    Raises ParameterError, with the line to type, where the method is given after its files, and where no file
    is named.
    """
    if first is None:
        raise ParameterError(f"assay {verb}", "no file is named", f"write: assay {verb} FILE")
    methods = samplers()
    words = [first, *map(str, others)]
    swapped = next((word for word in words[1:] if word in methods and not Path(word).exists()), None)
    if first not in methods and swapped is not None:
        words.remove(swapped)
        raise ParameterError(
            f"assay {verb}",
            f"the method comes before the files, and {first!r} is not one",
            f"write: assay {verb} {shlex.join([swapped, *words])}",
        )
    # A word that is no method and no file is a method that was spelled wrong, if files follow it.
    if first not in methods and (Path(first).exists() or not others):
        return None, [Path(first), *others]
    if not others:
        raise ParameterError(
            f"assay {verb}", f"no file is named after {first}", f"write: assay {verb} {first} FILE"
        )
    return first, list(others)


# What methods call the goals of -k and --target; the first that a method has is meant.
_COUNT = ("k", "launches")
_TARGET = ("target_error_percent", "epsilon_percent")


def with_goals(method: str, param: dict[str, str], count: int | None, target: float | None) -> dict[str, str]:
    """The method's parameters with those that ``-k`` and ``--target`` stand for.

    Raises ParameterError for a method without such a parameter, or if ``--param`` gives it, too.
    """
    goals: dict[str, str] = {}
    for option, names, value in (("-k", _COUNT, count), ("--target", _TARGET, target)):
        if value is not None:
            goals[_parameter(option, names, method)] = str(value)
    for name in goals:
        if name in param:
            raise ParameterError("--param", f"{name!r} is given twice", "give it once")
    return {**param, **goals}


def _parameter(option: str, names: tuple[str, ...], method: str) -> str:
    table = samplers()
    if method not in table:  # which method there is, is said where it is looked up
        return names[0]
    having = [each for each in table if any(name in table[each].parameters.model_fields for name in names)]
    if method not in having:
        raise ParameterError(option, f"{method} has no such parameter", f"use it with {', '.join(having)}")
    return next(name for name in names if name in table[method].parameters.model_fields)
