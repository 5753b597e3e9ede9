"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from assay_client.cli import completing
from assay_client.settings import ClientSettings
from assay_core.settings.command_line import option_of
from assay_sampling.errors import ParameterError
from assay_sampling.methods.built_in import BUILT_IN
from assay_sampling.parameters import WeightKind

if TYPE_CHECKING:
    from assay_sampling.launches.alignment import MatchKind

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print exactly one JSON document to standard output.")
]
ServerOption = Annotated[str | None, option_of(ClientSettings, "server")]
CampaignArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A campaign's id, such as demo-1.", autocompletion=completing.campaigns
    ),
]
OptionalCampaignArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        help="A campaign's id, such as demo-1; default: all campaigns.",
        autocompletion=completing.campaigns,
    ),
]
WorkloadOption = Annotated[
    str, typer.Option("--workload", metavar="NAME", help="Only the runs of this workload.")
]
RunOption = Annotated[
    str, typer.Option("--run", metavar="RUN_ID", help="Only this run, such as demo-1.0003.")
]
_METHODS_HELP = f"One of {', '.join(BUILT_IN)}; 'assay docs methods' says when to trust each."
MethodArgument = Annotated[
    str, typer.Argument(metavar="METHOD", help=_METHODS_HELP, autocompletion=completing.methods)
]
OptionalMethodArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="METHOD",
        help=f"{_METHODS_HELP} Default: the best verdict of a few fast ones.",
        autocompletion=completing.methods,
    ),
]
MethodParameterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        "-p",
        metavar="NAME=VALUE",
        help="A parameter of the method; repeatable.",
        autocompletion=completing.method_parameters,
    ),
]
CountOption = Annotated[
    int | None,
    typer.Option("-k", metavar="N", min=1, help="How many groups (pks) or launches (others) to take."),
]
TargetOption = Annotated[
    float | None,
    typer.Option("--target", metavar="PERCENT", help="Upper bound of the error of the total."),
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="NUMBER", min=0, help="Seed of every random choice.")
]
SyntheticOption = Annotated[
    bool,
    typer.Option("--synthetic", help="Mark the files as data that no silicon produced."),
]
MemoryLimitOption = Annotated[str | None, option_of(ClientSettings, "memory_limit_bytes")]
LaunchOffsetOption = Annotated[
    list[int] | None,
    typer.Option(
        "--launch-offset",
        metavar="NUMBER",
        min=0,
        help="Number of launches that the profiler skipped: launches are numbered from it in file order, "
        "instead of by the file's ids. Once for all FILEs, or once for each.",
    ),
]
RanksOption = Annotated[
    bool,
    typer.Option(
        "--ranks",
        help="Each FILE of a level is a rank of one job on one kind of GPU, in the order of their "
        "processes; default: the files are windows of one run.",
    ),
]
UnitOption = Annotated[
    str,
    typer.Option(
        "--unit",
        metavar="UNIT",
        help="launch, operation (calls of operators, whose kernels differ by GPU), or auto: operation only "
        "if fewer than 99 % of launches agree with another recording that is given.",
    ),
]
ProjectionParameterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        "-p",
        metavar="NAME=VALUE",
        help="A parameter of the projection, as in assay project; repeatable.",
    ),
]
TablesOption = Annotated[
    Path | None,
    typer.Option(
        "--tables",
        readable=False,
        metavar="DIR",
        help=r"Also write the tables as LaTeX, a tabular each for \input in a paper.",
    ),
]
DocumentOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", readable=False, metavar="FILE", help="Also write the JSON document here."),
]
MatchOption = Annotated[
    str,
    typer.Option(
        "--match",
        metavar="KIND",
        help="How closely launches are compared with the selection's: exact (kernel, grid, block), or "
        "name_block, without grids, for traces of another GPU.",
    ),
]


WeightsOption = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="KIND",
        help="launches, instructions or light_time; default: the selection's own, as PKA has them.",
    ),
]


def weight_kind(text: str | None) -> WeightKind | None:
    """The value of ``--weights``; raises ParameterError for another one."""
    if text is None:
        return None
    for kind in get_args(WeightKind):
        if text == kind:
            return cast(WeightKind, kind)
    raise ParameterError(
        "--weights", f"there are no weights by {text!r}", f"use {', '.join(get_args(WeightKind))}"
    )


def match_kind(text: str) -> MatchKind:
    """The value of ``--match``; raises ParameterError for another one."""
    if text == "exact":
        return "exact"
    if text == "name_block":
        return "name_block"
    raise ParameterError("--match", f"there is no kind {text!r}", "use exact or name_block")


def parse_parameters(
    assignments: Sequence[str], option: str = "--param", example: str = "k_max=20"
) -> dict[str, str]:
    """``k=v`` texts as a dictionary; raises ParameterError if ``=`` is missing or a key is given twice."""
    parameters: dict[str, str] = {}
    for text in assignments:
        key, separator, value = text.partition("=")
        key = key.strip()
        if not separator or not key:
            raise ParameterError(
                option, f"{text!r} is not of the form NAME=VALUE", f"write {option} {example}"
            )
        if key in parameters:
            raise ParameterError(option, f"{key!r} is given twice", "give it once")
        parameters[key] = value.strip()
    return parameters


def one_or_each(offsets: Sequence[int] | None) -> int | Sequence[int] | None:
    """The value of ``--launch-offset``: None, one number for all files, or one for each."""
    return offsets[0] if offsets and len(offsets) == 1 else offsets or None


def with_rule(values: dict[str, str], rule: str | None) -> dict[str, str]:
    """The parameters including the rule, which --rule or --param may name; ParameterError if both differ."""
    if rule is None:
        return values
    if values.get("rule", rule) != rule:
        raise ParameterError("--rule", f"--param rule={values['rule']} says otherwise", "give one of them")
    return {**values, "rule": rule}
