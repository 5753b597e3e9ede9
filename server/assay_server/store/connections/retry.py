"""Transactions that the database ended itself: what is known of them, and doing them again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from assay_sampling.errors import StorageError

# Long enough for a database that is restarted, and shorter than what an agent waits for an answer.
PATIENCE_SECONDS = 5.0
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.05, 1.0

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class NothingKeptError(StorageError):
    """The database ended a transaction, of which nothing was kept: it may be done again."""


class OutcomeUnknownError(StorageError):
    """The answer to a commit was lost, and the database did not come back to say whether it was kept."""


def repeated(call: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """A call that is done again for some seconds if the database ended its transaction.

    Others that were ended with it come back at moments of their own. Everything that the call changes must be
    in the database: a call that has answered somebody, or written a file under a new name, is none of these.
    """

    @wraps(call)
    def done(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
        try:
            return call(*args, **kwargs)
        except NothingKeptError:
            return again(NothingKeptError, lambda: call(*args, **kwargs))

    return done


def again(error: type[StorageError], call: Callable[[], Answer]) -> Answer:
    """Call after each such error again for some seconds, later each time, by chance; raises the last one."""
    from tenacity import (  # noqa: PLC0415 - seldom needed, and never on SQLite
        Retrying,
        retry_if_exception_type,
        stop_after_delay,
        wait_random_exponential,
    )

    retrying = Retrying(
        retry=retry_if_exception_type(error),
        stop=stop_after_delay(PATIENCE_SECONDS),
        wait=wait_random_exponential(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS),
        reraise=True,
    )
    return retrying(call)
