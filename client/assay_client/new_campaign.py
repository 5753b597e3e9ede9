"""Campaign files that run as they are written: of commands, or of a suite that comes with Assay."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from assay_client.campaign_template import SCHEMA_FILE
from assay_client.local_box import gpu_names_here, virtual_kind
from assay_client.one_box.command import name_of
from assay_client.pages import folder, suites
from assay_sampling.errors import ParameterError
from assay_sampling.running.gpu_names import GPU_NAMES, either, nearest
from assay_sampling.running.identity import device_key

VIRTUAL_SUITE = "virtual"
_VIRTUAL_GPU = "V100"
_WORKLOAD_FILE = ".toml"
_GPUS = re.compile(r"^gpus: \[.*?\]", re.MULTILINE)
_REFERENCE = re.compile(r"^(  reference: ).*$", re.MULTILINE)
_EDITORS = f"# yaml-language-server: $schema={SCHEMA_FILE}\n"
_IN_FULL = "name it in full, as 'assay-agent inventory' on the box does"


@dataclass(frozen=True)
class NewCampaign:
    """A campaign file to write.

    Args:
        text: of the file.
        synthetic: it runs on virtual GPUs.
        gpus: the kinds of GPU that it names.
        files: what it needs next to it, by path relative to it.
    """

    text: str
    synthetic: bool = False
    gpus: tuple[str, ...] = ()
    files: dict[Path, str] = field(default_factory=dict)


def campaign_of_commands(commands: Sequence[str], gpus: Sequence[str], file: Path) -> NewCampaign:
    """The campaign of commands, each as a shell would read it, for a file that is to be written at ``file``.

    Without ``gpus`` it names those of this machine; workload files run on virtual GPUs.

    Raises ParameterError for a command that is empty or mixes real and virtual GPUs, and for an unknown GPU.
    """
    programs = [_words(command) for command in commands]
    virtual = [any(word.endswith(_WORKLOAD_FILE) for word in words) for words in programs]
    if any(virtual) and not all(virtual):
        raise ParameterError(
            "--command",
            f"{commands[virtual.index(False)]!r} is not a workload file, and only those run on virtual GPUs",
            "write a file for each kind of GPU",
        )
    names = _gpus(gpus, synthetic=all(virtual))
    names_of_workloads = _distinct([name_of(words) for words in programs])
    workloads = "".join(
        f"  - name: {json.dumps(name)}\n    command: {json.dumps(_from(file.parent, words))}\n"
        for name, words in zip(names_of_workloads, programs, strict=True)
    )
    options = [*(f"--command {shlex.quote(command)}" for command in commands)]
    text = _COMMANDS.format(
        editors=_EDITORS,
        command=" ".join(["assay init", *options, *(f"--gpus {shlex.quote(name)}" for name in names)]),
        virtual="".join(f" --virtual {shlex.quote(name)}" for name in names) if all(virtual) else "",
        file=shlex.quote(file.name),
        campaign=names_of_workloads[0],
        synthetic=json.dumps(all(virtual)),
        gpus=json.dumps(names),
        workloads=workloads,
        reference=json.dumps(names[0]),
    )
    return NewCampaign(text, all(virtual), tuple(names))


def campaign_of_suite(suite: str, gpus: Sequence[str]) -> NewCampaign:
    """A campaign that comes with Assay, for other GPUs where they are named.

    Raises ParameterError for a suite that does not exist, and for an unknown GPU.
    """
    all_suites = (*suites(), VIRTUAL_SUITE)
    if suite not in all_suites:
        raise ParameterError("--suite", f"there is no suite {suite!r}", f"there are {', '.join(all_suites)}")
    synthetic = suite == VIRTUAL_SUITE
    text = (folder("campaigns") / f"{suite}.yaml").read_text("utf-8")
    files = dict(_workload_files()) if synthetic else {}
    names = _gpus(gpus, synthetic=synthetic) if gpus or not synthetic else []
    if names:
        text = _GPUS.sub(lambda _: f"gpus: {json.dumps(names)}", text, count=1)
        text = _REFERENCE.sub(lambda match: match[1] + json.dumps(names[0]), text, count=1)
    return NewCampaign(_EDITORS + text, synthetic, tuple(names), files)


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ParameterError(
            "--command", f"{command!r} is not a command ({error})", "quote it as a shell would read it"
        ) from error
    if not words:
        raise ParameterError(
            "--command",
            "the command is empty",
            "write the program with its arguments: --command './train 10'",
        )
    return words


def _from(folder_of_file: Path, words: Sequence[str]) -> list[str]:
    """The words with the program, if it is a file given by a path, as it is found from the file's folder."""
    program, *arguments = words
    path = Path(program)
    is_path = "/" in program or program.endswith(_WORKLOAD_FILE)
    if is_path and not path.is_absolute() and folder_of_file.resolve() != Path.cwd() and path.exists():
        program = os.path.relpath(path.resolve(), folder_of_file.resolve())
        program = program if "/" in program or program.endswith(_WORKLOAD_FILE) else f"./{program}"
    return [program, *arguments]


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, those that came before with a number behind them."""
    distinct_names: list[str] = []
    for name in names:
        candidate = next(
            each
            for each in (name, *(f"{name}-{number}" for number in range(2, len(names) + 2)))
            if each not in distinct_names
        )
        distinct_names.append(candidate)
    return distinct_names


def _gpus(texts: Sequence[str], *, synthetic: bool) -> list[str]:
    """Names of GPUs, each once; raises ParameterError for one that no agent could have."""
    names = [name.strip() for text in texts for name in text.split(",")]
    if any(not name for name in names):
        raise ParameterError("--gpus", "a name is empty", "separate names by commas: V100, RTX 2060")
    if synthetic:
        return list(dict.fromkeys(virtual_kind(name, "--gpus") for name in names)) or [_VIRTUAL_GPU]
    here = gpu_names_here()
    if not names:
        if not here:
            raise ParameterError(
                "--gpus",
                "this machine has no GPU to name",
                "name those of your boxes, as 'assay-agent inventory' prints them there: --gpus 'H100 PCIe'",
            )
        return list(here)
    for name in names:
        meant = nearest(name, (*GPU_NAMES, *here), device_key)
        if meant is not None:
            hint = f" (did you mean {either(meant)}?)" if meant else ""
            raise ParameterError("--gpus", f"no known GPU is called {name!r}{hint}", _IN_FULL)
    return list(dict.fromkeys(names))


def _workload_files() -> Iterator[tuple[Path, str]]:
    for path in sorted((folder("campaigns") / VIRTUAL_SUITE).glob(f"*{_WORKLOAD_FILE}")):
        yield Path(VIRTUAL_SUITE) / path.name, path.read_text("utf-8")


_COMMANDS = """\
{editors}# Written by: {command}
# Paths are relative to this file. 'assay docs campaign-file' has all keys.
# What it would run; run it here, in one process; run it on a server's agents:
#   assay plan {file}
#   assay run {file}{virtual}
#   assay lab submit {file}

campaign: {campaign}
synthetic: {synthetic}
seed: 0
gpus: {gpus}

# Every launch with its time, then counters of those launches that show the most of it. A box that refuses
# counters (ERR_NVGPUCTRPERM) needs `detailed: none` ('assay docs light-only').
light: auto
detailed: {{first: auto, time_budget_s: 900}}
# conditions:
#   - {{cache: all}}            # also with flushed caches
#   - {{sm_percent: 50}}        # also at half of the SMs
# repeats: 3

workloads:
{workloads}
analysis:
  reference: {reference}
  methods: [pks, stem, balanced]
"""
