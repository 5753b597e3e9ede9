"""Command lines that the parser refuses, as failures that say what to type instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from assay_client.cli.completing import WORDS
from assay_client.cli.reporters.failure import Failure
from assay_client.cli.verb import LazyGroup
from assay_client.cli.verb_list import ADMIN, LAB, MODULES

EXIT_USAGE = 2
_ALIKE = 0.61
_LETTERS = 2
_FEW = 6
_ALL_VERBS = [
    f"{group} {verb}"
    for group, verbs in (("assay", MODULES), ("assay lab", LAB.verbs), ("assay admin", ADMIN.verbs))
    for verb in verbs
]


def usage_failure(error: Any) -> Failure:
    """The failure behind a usage error of the parser.

    Its exceptions have no public base class that is the same in all releases of typer: their attributes tell
    them apart.
    """
    context: Any = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "assay"
    if hasattr(error, "command_name"):
        cause, remedy = _no_such_command(error, command)
    elif hasattr(error, "possibilities"):
        cause, remedy = _no_such_option(error, context, command)
    elif hasattr(error, "param_type"):
        cause, remedy = f"{_name(error.param)} is missing", _form(error.param, context, command)
    elif getattr(error, "param", None) is not None:
        sentence, value = _sentence(str(error)), _typed_value(error.param, context.meta.get(WORDS, ()))
        shown = f" {value!r}" if value and repr(value) not in sentence else ""
        cause, remedy = f"{_name(error.param)}{shown}: {sentence}", _to_give(error.param, context)
    elif hasattr(error, "option_name"):
        parameter = _parameter(error.option_name, context)
        cause, remedy = f"{error.option_name} needs a value", _form(parameter, context, command)
    elif hasattr(getattr(context, "command", None), "list_commands"):
        cause = "no verb is named after it"
        verbs, listing = _verbs(context, command), f"'{command} --help' says what each does"
        remedy = f"write one of: {', '.join(verbs)}; {listing}" if len(verbs) <= _FEW else listing
    else:
        cause, remedy = _sentence(error.format_message()), _form(None, context, command)
    return Failure("UsageError", command, cause, remedy, EXIT_USAGE)


def _no_such_command(error: Any, command: str) -> tuple[str, str]:
    word = error.command_name
    verbs = _verbs(error.ctx, command)
    if isinstance(error.ctx.command, LazyGroup):
        verbs += [verb for verb in _ALL_VERBS if verb not in verbs]
    if same := [verb for verb in verbs if verb.rpartition(" ")[2] == word]:
        return f"there is no verb {word!r}", f"write: {' or '.join(same)}"
    # A typing error changes a letter or two; "profile" does not mean "role".
    close = [
        verb
        for name in _close(word, {verb.rpartition(" ")[2] for verb in verbs})
        for verb in verbs
        if verb.endswith(f" {name}") and abs(len(name) - len(word)) <= _LETTERS
    ]
    listing = f"'{command} --help' lists all"
    remedy = f"did you mean: {', '.join(close)}? {listing}" if close else listing
    return f"there is no verb {word!r}", remedy


def _verbs(context: Any, command: str) -> list[str]:
    return [f"{command} {name}" for name in context.command.list_commands(context)]


def _no_such_option(error: Any, context: Any, command: str) -> tuple[str, str]:
    cause = f"there is no option {error.option_name}"
    if context is None:
        return cause, f"'{command} --help' lists all"
    if remedy := _as_method_parameter(error.option_name.lstrip("-").replace("-", "_"), context, command):
        return cause, remedy
    options = [
        name for each in context.command.get_params(context) for name in each.opts if name.startswith("-")
    ]
    close = _close(error.option_name, options)
    listing = f"'{command} --help' lists all"
    return cause, f"did you mean: {', '.join(close)}? {listing}" if close else listing


def _as_method_parameter(name: str, context: Any, command: str) -> str:
    """What to write for a parameter of a method that was given as an option; "" for another option."""
    if not any("--param" in each.opts for each in context.command.get_params(context)):
        return ""
    from assay_sampling.methods.registry import samplers  # noqa: PLC0415

    by_name = samplers()
    words: Sequence[str] = context.meta.get(WORDS, ())
    named = [word for word in words if word in by_name]
    methods = [each for each in named or by_name if name in by_name[each].parameters.model_fields]
    if not methods:
        return ""
    at = next((i for i, word in enumerate(words) if word.lstrip("-").replace("-", "_") == name), len(words))
    value = words[at + 1] if at + 1 < len(words) else "VALUE"
    whose = f"it is a parameter of {', '.join(methods[:3])}{' and others' if len(methods) > 3 else ''}"
    return f"{whose}: write --param {name}={value}"


def _to_give(parameter: Any, context: Any) -> str:
    meaning = (getattr(parameter, "help", "") or "").rstrip(".")
    remedy = f"give {parameter.metavar}" if parameter.metavar else "give another value"
    return f"{remedy} ({meaning})" if meaning else f"{remedy}; see: {context.command_path} --help"


def _form(parameter: Any, context: Any, command: str) -> str:
    """What to write: the option with its value, or else the verb with all of its arguments."""
    if context is None:
        return f"see: {command} --help"
    if parameter is not None and parameter.param_type_name == "option":
        meaning = (getattr(parameter, "help", "") or "").rstrip(".")
        form = f"{_name(parameter)} {parameter.metavar or 'VALUE'}"
        return f"write: {command} {form} ({meaning})" if meaning else f"write: {command} {form}"
    words = [word for word in context.command.collect_usage_pieces(context) if word]
    return f"write: {' '.join([command, *words])}; see: {command} --help"


def _parameter(option: str, context: Any) -> Any:
    if context is None:
        return None
    return next((each for each in context.command.get_params(context) if option in each.opts), None)


def _typed_value(parameter: Any, words: Sequence[str]) -> str:
    """The value that was given for an option, as it was typed; "" for an argument."""
    for at, word in enumerate(words):
        if word in parameter.opts and at + 1 < len(words):
            return words[at + 1]
        name, equals, value = word.partition("=")
        if equals and name in parameter.opts:
            return value
    return ""


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper()).strip("[]")
    return str(max(parameter.opts, key=len))


def _close(word: str, names: Iterable[str]) -> list[str]:
    """Similar names; leading dashes are ignored, because they make all short options similar."""
    bare = {name.lstrip("-"): name for name in names}
    return [bare[each] for each in difflib.get_close_matches(word.lstrip("-"), bare, cutoff=_ALIKE)]


def _sentence(text: str) -> str:
    """The parser's sentence as a cause: in one line, without its full stop."""
    joined = " ".join(text.split()).rstrip(".? ").removeprefix("Value error, ")
    return joined[:1].lower() + joined[1:]


__all__ = ["EXIT_USAGE", "usage_failure"]
