"""Shell completion: methods, their parameters, and the campaigns of a server.

Nothing here may fail or wait for long: a person pressed a key.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import typer

from assay_sampling.errors import AssayError

_PATIENCE_SECONDS = 1.0
# The key under which a verb keeps the words of its command line while it parses them.
WORDS = "assay_client.words"


def methods(incomplete: str) -> list[str]:
    """The selection methods that begin with ``incomplete``."""
    from assay_sampling.methods.registry import samplers  # noqa: PLC0415 - only behind Tab

    return [name for name in samplers() if name.startswith(incomplete)]


def method_parameters(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """``NAME=`` of each parameter of the method on the line, with its meaning; after ``=`` its values."""
    with contextlib.suppress(AssayError):
        return list(_parameters(ctx.meta.get(WORDS, ()), incomplete))
    return []


def _parameters(words: Sequence[str], incomplete: str) -> Iterator[tuple[str, str]]:
    from assay_sampling.methods.parameter_help import parameter_help  # noqa: PLC0415
    from assay_sampling.methods.registry import samplers  # noqa: PLC0415 - only behind Tab

    methods = samplers()
    method = next((word for word in words if word in methods), None)
    if method is None:
        return
    name, equals, _ = incomplete.partition("=")
    for parameter in parameter_help(methods[method].parameters):
        if equals and parameter.name == name:
            words = [word for word in parameter.values.split(", or ")[0].split("|") if word.isidentifier()]
            yield from ((f"{name}={word}", parameter.help) for word in words)
        elif not equals and parameter.name.startswith(incomplete):
            yield f"{parameter.name}=", parameter.help


def campaigns(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The campaigns of the server that the line names, or of this user's own, with their states."""
    from assay_client.remote.client import Client  # noqa: PLC0415 - only behind Tab

    with (
        contextlib.suppress(AssayError, OSError),
        Client(ctx.params.get("server"), connect_seconds=_PATIENCE_SECONDS) as client,
    ):
        pairs = ((str(each["campaign_id"]), str(each["state"])) for each in client.campaigns())
        return [(campaign, state) for campaign, state in pairs if campaign.startswith(incomplete)]
    return []
