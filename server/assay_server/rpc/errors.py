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
# gRPC takes 8 KiB of metadata by default: the document in base64, and the details percent-encoded.
_MOST_DOCUMENT_BYTES = 4000
_MOST_DETAILS_BYTES = 800

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
    most = _MOST_DOCUMENT_BYTES
    while True:
        texts = {name: _within(str(getattr(error, name)), most) for name in ("subject", "cause", "remedy")}
        document = json.dumps({"type": kind.__name__, **texts}, ensure_ascii=False).encode(errors="replace")
        if len(document) <= _MOST_DOCUMENT_BYTES:
            return document
        most = most * 3 // 4


def _within(text: str, most_bytes: int) -> str:
    data = text.encode(errors="replace")
    if len(data) <= most_bytes:
        return text
    return f"{data[: most_bytes - 3].decode(errors='ignore')}..."


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: Exception, call: str) -> NoReturn:
    """End a call with an error; what is no AssayError is a fault of ours and goes to the log."""
    if not isinstance(error, AssayError):
        _log.error("%s failed", call, exc_info=error)
        error = AssayError(
            "server", f"{call} failed ({type(error).__name__}: {error})", "see the log of the server"
        )
    await context.abort(
        status_code(error), _within(str(error), _MOST_DETAILS_BYTES), ((METADATA_KEY, error_document(error)),)
    )
    raise AssertionError("abort returned")  # it raises
