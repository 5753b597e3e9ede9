"""What every verb's parser is made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand


class VerbCommand(TyperCommand):
    """A verb whose help names its arguments in words: ``FILE...``, never the types of the program."""

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


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _word(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _help(argument: Any, ctx: Any) -> str:
    """Its help with its default, and whether it is required."""
    return str(argument.get_help_record(ctx)[1])


class VerbApp(typer.Typer):
    """A parser whose commands are :class:`VerbCommand`."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        return super().command(name, cls=VerbCommand, **settings)


def verb_app() -> VerbApp:
    """A parser for one verb: plain help, no completion of its own, errors left to ``main``."""
    return VerbApp(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
