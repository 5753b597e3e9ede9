"""Context managers that are entered one after the other and left together."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self


class Together(ABC):
    """Enters what :meth:`_each` yields, in that order; if one raises, those before it are left again."""

    _stack: contextlib.ExitStack

    @abstractmethod
    def _each(self) -> Iterator[AbstractContextManager[Any]]:
        """The context managers, each made when those before it were entered."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for manager in self._each():
                stack.enter_context(manager)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
