"""Typed errors over gRPC: a status for programs that know only gRPC, the error itself for ours.

The text goes into the status details; type, subject, cause and remedy go as JSON into the trailing
metadata under ``assay-error-bin``, from which clients build the same error again.
"""

from __future__ import annotations

import json
import logging
from typing import Any, NoReturn

import grpc

from assay_sampling.errors import (
    AssayError,
    CampaignError,
    CounterUnavailableError,
    InputError,
    LaunchTableError,
    MissingExtraError,
    ParameterError,
    RefusedError,
    RunFailedError,
    StorageError,
)
from assay_server.campaigns.errors import NotYetError, UnknownThingError

METADATA_KEY = "assay-error-bin"
# gRPC refuses metadata of more than 8 KiB by default.
_LONGEST_FIELD = 1500
_LONGEST_DETAILS = 4000

_log = logging.getLogger(__name__)


_CODES: tuple[tuple[type[AssayError], grpc.StatusCode], ...] = (
    (UnknownThingError, grpc.StatusCode.NOT_FOUND),
    (NotYetError, grpc.StatusCode.FAILED_PRECONDITION),
    (CampaignError, grpc.StatusCode.INVALID_ARGUMENT),
    (ParameterError, grpc.StatusCode.INVALID_ARGUMENT),
    (InputError, grpc.StatusCode.INVALID_ARGUMENT),
    (LaunchTableError, grpc.StatusCode.INVALID_ARGUMENT),
    (RefusedError, grpc.StatusCode.FAILED_PRECONDITION),
    (CounterUnavailableError, grpc.StatusCode.FAILED_PRECONDITION),
    (RunFailedError, grpc.StatusCode.FAILED_PRECONDITION),
    (MissingExtraError, grpc.StatusCode.FAILED_PRECONDITION),
    # Retried by agents: what they have stays in their spool until the disk takes it again.
    (StorageError, grpc.StatusCode.RESOURCE_EXHAUSTED),
)


def status_code(error: AssayError) -> grpc.StatusCode:
    """The gRPC status that stands for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)


def error_document(error: AssayError) -> bytes:
    """The error as JSON, within what gRPC takes as metadata."""
    kind = type(error)
    if isinstance(error, UnknownThingError | NotYetError):
        kind = CampaignError
    fields = {"type": kind.__name__}
    for name in ("subject", "cause", "remedy"):
        text = str(getattr(error, name))
        fields[name] = text if len(text) <= _LONGEST_FIELD else f"{text[:_LONGEST_FIELD]}..."
    return json.dumps(fields).encode()


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: Exception, call: str) -> NoReturn:
    """End a call with an error; what is no AssayError is a fault of ours and goes to the log."""
    if not isinstance(error, AssayError):
        _log.error("%s failed", call, exc_info=error)
        error = AssayError(
            "server", f"{call} failed ({type(error).__name__}: {error})", "see the log of the server"
        )
    await context.abort(
        status_code(error), str(error)[:_LONGEST_DETAILS], ((METADATA_KEY, error_document(error)),)
    )
    raise AssertionError("abort returned")  # it raises
