"""A thread that answers questions in groups: all that wait at one moment together."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from assay_sampling.errors import AssayError, StorageError

_log = logging.getLogger(__name__)

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Grouped(Generic[Question, Answer]):
    """Takes questions from any thread, and answers them in one, in the order in which they came.

    Args:
        answers: the answers to a group, in its order; an error among them is raised to who asked. Where it
            raises itself, everybody in the group hears of it.
        name: of the thread.
        most: questions in a group.
        fault: subject and cause for those whose answer a defect of ours prevents.
        gather_seconds: how long others are waited for after the first one.
    """

    def __init__(
        self,
        answers: Callable[[list[Question]], Sequence[Answer | AssayError]],
        *,
        name: str,
        most: int,
        fault: tuple[str, str],
        gather_seconds: float = 0.0,
    ) -> None:
        self._answers, self._most, self._fault = answers, most, fault
        self._gather_seconds = gather_seconds
        self._waiting: queue.SimpleQueue[tuple[Question, Future[Answer]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def take(self, question: Question) -> Future[Answer]:
        """The answer, behind those to all earlier questions; cancelling it changes nothing."""
        answer: Future[Answer] = Future()
        answer.set_running_or_notify_cancel()
        self._waiting.put((question, answer))
        return answer

    def close(self) -> None:
        """Answer what was asked, then stop; nobody asks any more."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            time.sleep(self._gather_seconds)
            group = [first]
            while len(group) < self._most and not self._waiting.empty():
                following = self._waiting.get()
                if following is None:
                    self._waiting.put(None)
                    break
                group.append(following)
            self._answer([question for question, _ in group], [future for _, future in group])

    def _answer(self, questions: list[Question], futures: Sequence[Future[Answer]]) -> None:
        answers: Sequence[Answer | AssayError]
        try:
            answers = self._answers(questions)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for the futures
            answers = [self._error_for_callers(error)] * len(questions)
        for future, answer in zip(futures, answers, strict=True):
            if isinstance(answer, AssayError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _error_for_callers(self, error: Exception) -> AssayError:
        """An error as who asked may hear it; a bug goes to the log."""
        if isinstance(error, AssayError):
            return error
        subject, cause = self._fault
        _log.error("%s: %s", subject, cause, exc_info=error)
        return StorageError(subject, f"{cause} ({error})", "see the server's log")
