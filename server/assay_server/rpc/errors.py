"""Typed errors over gRPC: a status for programs that know only gRPC, the error itself for ours.

The text goes into the status details; type, subject, cause and remedy go as JSON into the trailing
metadata under ``assay-error-bin``, from which clients rebuild the error.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NoReturn

import grpc

from assay_core.records.error_metadata import METADATA_KEY, ErrorMetadata, cut_text
from assay_sampling.errors import (
    AssayError,
    CampaignError,
    CounterUnavailableError,
    InputError,
    LaunchTableError,
    MissingExtraError,
    NotIdentifiedError,
    NotPermittedError,
    ParameterError,
    RefusedError,
    RunFailedError,
    StorageError,
)
from assay_server.campaigns.errors import NotYetError, UnknownThingError

# gRPC takes 8 KiB of metadata by default; the details are percent-encoded and share it with the typed error.
_MOST_DETAILS_BYTES = 800
_ABORT_SECONDS = 5.0

_log = logging.getLogger(__name__)


# The first that fits: some errors are CampaignErrors, too.
_CODES: tuple[tuple[tuple[type[AssayError], ...], grpc.StatusCode], ...] = (
    ((NotIdentifiedError,), grpc.StatusCode.UNAUTHENTICATED),
    ((NotPermittedError,), grpc.StatusCode.PERMISSION_DENIED),
    ((UnknownThingError,), grpc.StatusCode.NOT_FOUND),
    (
        (NotYetError, RefusedError, CounterUnavailableError, RunFailedError, MissingExtraError),
        grpc.StatusCode.FAILED_PRECONDITION,
    ),
    ((CampaignError, ParameterError, InputError, LaunchTableError), grpc.StatusCode.INVALID_ARGUMENT),
    # Agents retry: their data stays in the spool until the disk accepts it again.
    ((StorageError,), grpc.StatusCode.RESOURCE_EXHAUSTED),
)


def status_code(error: AssayError) -> grpc.StatusCode:
    """The gRPC status of an error."""
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), grpc.StatusCode.INTERNAL)


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: Exception, call: str) -> NoReturn:
    """End a call with an error; an error that is not an AssayError is a bug and goes to the log.

    A call that was ended before, as that of somebody who was revoked is, keeps the status that it has.
    """
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, AssayError):
        _log.error("%s failed", call, exc_info=error)
        error = AssayError(
            "server", f"{call} failed ({type(error).__name__}: {error})", "see the log of the server"
        )
    metadata = ((METADATA_KEY, ErrorMetadata.of(error).encode()),)
    ended = context.abort(status_code(error), cut_text(str(error), _MOST_DETAILS_BYTES), metadata)
    try:
        await asyncio.wait_for(ended, _ABORT_SECONDS)
    except TimeoutError:
        # The peer has not taken what came before; the status waits for it behind that.
        raise asyncio.CancelledError from None
    raise AssertionError("abort returned")  # it raises
