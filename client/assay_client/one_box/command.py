"""A command as a campaign of one workload: both levels on this box, light run first, within a budget."""

from __future__ import annotations

import fnmatch
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from assay_client.one_box.unfinished import Source
from assay_sampling.errors import ParameterError

Unit = Literal["auto", "launch", "operation"]

_NAME = "assay-run"
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_INTERPRETER = re.compile(r"(python|pypy)[\d.]*|torchrun|accelerate|deepspeed")
_LONGEST_NAME = 60
# Runs with counters: true cycles in one pass, and features; flushed caches are one more.
_DETAILED_RUNS = 2
# Those that assay select tries where no method is named.
_METHODS, _LIGHT_METHODS = ("pks", "stem", "balanced"), ("stem", "balanced")
# What a program needs of its person's environment to be the same program. Whatever looks like a secret stays
# out, and so does all that belongs to the agent: HOME, TMPDIR, CUDA's choice of devices.
_PASSED = (
    "PYTHONPATH", "PYTHONHASHSEED", "PYTHONNOUSERSITE", "PYTHONUSERBASE", "VIRTUAL_ENV", "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV", "OMP_*", "MKL_*", "OPENBLAS_*", "HF_HOME", "HF_HUB_*", "HF_DATASETS_*",
    "TRANSFORMERS_*", "TORCH_HOME", "PYTORCH_*", "TF_*", "XLA_FLAGS", "JAX_*", "NCCL_*",
    "CUBLAS_WORKSPACE_CONFIG", "CUDA_HOME", "CUDA_PATH", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING",
)  # fmt: skip
_SECRET = re.compile(r"SECRET|TOKEN|PASS|CRED|KEY|AUTH|COOKIE", re.IGNORECASE)
# The agent's HOME is empty: what programs look for in their person's home, by the variable that leads there.
_IN_HOME = (
    ("PYTHONUSERBASE", ".local"),
    ("HF_HOME", ".cache/huggingface"),
    ("TORCH_HOME", ".cache/torch"),
)


@dataclass(frozen=True)
class CommandBox:
    """What this box measures a command with.

    Args:
        gpus: the kinds of GPU, real or virtual, that it is measured on.
        synthetic: whether these are virtual.
        counters: whether Nsight Compute is there.
        operations: whether its light runs can record operations.
    """

    gpus: tuple[str, ...]
    synthetic: bool = False
    counters: bool = True
    operations: bool = True


@dataclass(frozen=True)
class CommandOptions:
    """How a command is measured.

    Args:
        budget_seconds: what all slices with counters may take together.
        sm_share: another light run at this share of the SMs in percent; None: none.
        flush: whether to profile with flushed caches, too.
        unit: "auto" records operations where the program is one of a framework.
        environment: variables of the command beside those that it is given by itself.
        light_limit_seconds: after which a light run ends the program; 0: it is recorded whole.
    """

    budget_seconds: float = 1800.0
    sm_share: float | None = None
    flush: bool = False
    unit: Unit = "auto"
    environment: Mapping[str, str] = field(default_factory=dict)
    light_limit_seconds: int = 600


def command_source(command: Sequence[str], folder: Path, box: CommandBox, options: CommandOptions) -> Source:
    """The campaign of a command that runs in ``folder``; the same command there is the same source."""
    document: dict[str, Any] = {
        "campaign": name_of(command),
        "synthetic": box.synthetic,
        "gpus": list(box.gpus),
        "light": "auto",
        "detailed": "none",
        "workloads": [_workload(command, box, options)],
        "analysis": {"methods": list(_METHODS if box.counters else _LIGHT_METHODS)},
    }
    conditions: list[dict[str, Any]] = []
    if box.counters:
        runs = _DETAILED_RUNS + options.flush
        document["detailed"] = {"first": "auto", "time_budget_s": options.budget_seconds / runs}
        conditions += [{"cache": "all"}] if options.flush else []
    if options.sm_share is not None:
        conditions.append({"sm_percent": options.sm_share})
    if conditions:
        document["conditions"] = conditions
    identity = json.dumps([str(folder.resolve()), list(command)])
    return Source(json.dumps(document, indent=1), folder / _NAME, identity)


def _workload(command: Sequence[str], box: CommandBox, options: CommandOptions) -> dict[str, Any]:
    workload: dict[str, Any] = {"name": name_of(command), "command": list(command)}
    if options.light_limit_seconds:
        workload["light_limit_s"] = options.light_limit_seconds
    if options.environment:
        workload["environment"] = dict(options.environment)
    by_operation = options.unit == "operation" or (options.unit == "auto" and _of_a_framework(command))
    if by_operation and box.operations:
        workload["unit"] = "operation"
    return workload


def name_of(command: Sequence[str]) -> str:
    """A name for a command: the stem of its script, module or program, as campaigns are named."""
    stem = _NOT_IN_A_NAME.sub("-", Path(_program(command)).stem).strip("-._")
    return stem[:_LONGEST_NAME] or "command"


def _program(command: Sequence[str]) -> str:
    """The script or module that an interpreter runs, else the program."""
    if _INTERPRETER.fullmatch(Path(command[0]).name):
        for before, word in itertools.pairwise(command):
            if before == "-m":
                return word.rpartition(".")[2] or word
            if word.endswith(".py"):
                return word
    return command[0]


def _of_a_framework(command: Sequence[str]) -> bool:
    """Whether the program is likely to announce its operators: Python's do, and virtual ones that say so."""
    scripts = command[0].endswith(".py") or _INTERPRETER.fullmatch(Path(command[0]).name) is not None
    return scripts or "--emit-nvtx" in command


def command_environment(texts: Sequence[str], own: Mapping[str, str], home: Path | None) -> dict[str, str]:
    """The variables of a command.

    Args:
        texts: ``NAME=VALUE``, or ``NAME`` for the value that it has here.
        own: this process's environment, of which only well-known names are passed on.
        home: the person's home, for what programs look for in it; None if unknown.

    Raises ParameterError for a name that is not set here.
    """
    passed = {name: value for name, value in own.items() if _is_passed(name)}
    for name, folder in _IN_HOME:
        if home is not None and name not in passed and (home / folder).is_dir():
            passed[name] = str(home / folder)
    return dict(sorted({**passed, **dict(_parse_texts(texts, own))}.items()))


def _is_passed(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _PASSED) and not _SECRET.search(name)


def _parse_texts(texts: Sequence[str], own: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or (not equals and name not in own):
            cause = f"{name} is not set here" if name else f"{text!r} has no name"
            raise ParameterError(
                "--environment", cause, "write NAME=VALUE, or the NAME of a variable that is set"
            )
        yield name, value if equals else own[name]


def home_of_person() -> Path | None:
    """The home of whoever runs this process; None if unknown."""
    try:
        return Path.home() if os.environ.get("HOME") != "" else None
    except RuntimeError:
        return None
