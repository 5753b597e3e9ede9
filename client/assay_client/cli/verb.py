"""The parser classes of all verbs and of their groups, whose modules are imported when a verb is used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from assay_client.cli.completing import WORDS
from assay_client.cli.standard_input import with_standard_input
from assay_client.cli.verb_list import Group
from assay_core.loading import loading

if TYPE_CHECKING:
    from assay_sampling.methods.parameter_help import ParameterHelp


class VerbCommand(TyperCommand):
    """A verb whose help names its arguments in words, ``FILE...``, and never shows Python types."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = list(args)
        try:
            return list(super().parse_args(ctx, args))
        except Exception as error:
            if getattr(error, "ctx", ctx) is None:  # the parser does not always say which verb refused
                error.ctx = ctx  # type: ignore[attr-defined]
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        words = [self.options_metavar or ""]
        words += [_word(p) if p.required else f"[{_word(p)}]" for p in self._arguments(ctx)]
        return words

    def format_options(self, ctx: Any, formatter: Any) -> None:
        records: dict[str, list[Any]] = {
            "Arguments": [(_word(p), _help(p, ctx)) for p in self._arguments(ctx)],
            "Options": [p.get_help_record(ctx) for p in self.get_params(ctx) if not _is_argument(p)],
        }
        for heading, lines in records.items():
            shown = [line for line in lines if line is not None]
            if shown:
                with formatter.section(heading):
                    formatter.write_dl(shown)

    def _arguments(self, ctx: Any) -> list[Any]:
        return [parameter for parameter in self.get_params(ctx) if _is_argument(parameter)]


class FileVerbCommand(VerbCommand):
    """A verb that reads files, for which ``-`` stands for standard input."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_standard_input(ctx, args))


class MethodVerbCommand(FileVerbCommand):
    """A verb whose first argument is a selection method: its help lists that method's parameters too."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        from assay_sampling.methods.parameter_help import parameter_help  # noqa: PLC0415
        from assay_sampling.methods.registry import methods_of_others, samplers  # noqa: PLC0415

        methods = samplers()
        method = next((word for word in ctx.meta.get(WORDS, ()) if word in methods), None)
        if method is None:
            formatter.write_paragraph()
            formatter.write_text(f"The parameters of a method: {ctx.command_path} METHOD --help")
            if others := methods_of_others():
                formatter.write_text(f"Methods of other packages: {', '.join(others)}")
            return
        with formatter.section(f"Parameters of {method} (--param NAME=VALUE)"):
            formatter.write_dl(
                [
                    (f"{each.name}={each.default}", _meaning(each))
                    for each in parameter_help(methods[method].parameters)
                ]
                or [("none", "")]
            )


def _meaning(parameter: ParameterHelp) -> str:
    return f"{parameter.help} [{parameter.values}]"


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _word(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _help(argument: Any, ctx: Any) -> str:
    """Its help with its default, and whether it is required."""
    return str(argument.get_help_record(ctx)[1])


class VerbGroup(TyperGroup):
    """A group of verbs; an error about an unknown verb carries the word and the group, for its message."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            if args and hasattr(error, "format_message"):
                error.ctx, error.command_name = ctx, args[0]  # type: ignore[attr-defined]
            raise


class DefaultVerbGroup(VerbGroup):
    """A group whose verb ``default`` is used if the first word names no verb, as in ``assay import FILE``."""

    default = ""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = args[0] if args else "--help"
        if first not in self.commands and first not in ctx.help_option_names:
            args = [self.default, *args]
        return list(super().parse_args(ctx, args))


class VerbApp(typer.Typer):
    """A parser whose commands are :class:`VerbCommand`."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        return super().command(name, **{"cls": VerbCommand, **settings})


def verb_app(group: type[TyperGroup] | None = None) -> VerbApp:
    """A parser for one verb: plain help, no options for completion, errors left to ``main``."""
    return VerbApp(
        cls=group or VerbGroup, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )


class LazyVerbs(MutableMapping[str, Any]):
    """Commands by name, each imported at its first use from the module that ``modules`` names."""

    def __init__(self, modules: dict[str, str]) -> None:
        self._modules = modules
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            with loading():
                command = typer.main.get_command(importlib.import_module(self._modules[name]).app)
            command.name = name
            self._loaded[name] = command
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class LazyGroup(VerbGroup):
    """A group of verbs of the list; its help page is made from the list."""

    modules: dict[str, str]
    groups: tuple[Group, ...]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyVerbs(self.modules)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.modules)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        # As click does, but from the list: its own way imports every verb, for a second and a half.
        widest = max(map(len, self.modules))
        for group in self.groups:
            with formatter.section(group.heading):
                formatter.write_dl([(verb.ljust(widest), does) for verb, does in group.verbs.items()])


def lazy_app(group: Group) -> VerbApp:
    """The parser of one group of verbs, such as ``assay lab``."""
    return verb_app(type("OneGroup", (LazyGroup,), {"modules": group.modules(), "groups": (group,)}))
