"""Columns of the stand-ins' reports in plain Python: printing or exporting a report needs no NumPy."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# 64-bit integers ("q"), or doubles ("d"), of which NaN is "not measured".
Numbers: TypeAlias = "array[Any]"
Column: TypeAlias = "array[Any] | Texts"


@dataclass(frozen=True)
class Texts:
    """A column of texts: the distinct ones, and the index of each row's into them ("q")."""

    distinct: tuple[str, ...]
    index: Numbers

    def __len__(self) -> int:
        return len(self.index)

    def cells(self) -> list[str]:
        """The text of each row."""
        return [self.distinct[i] for i in self.index]


@dataclass(frozen=True)
class Columns:
    """Columns of one length by name, in order."""

    by_name: Mapping[str, Column]

    @property
    def rows(self) -> int:
        return len(next(iter(self.by_name.values()))) if self.by_name else 0

    def numbers(self, name: str) -> Numbers:
        """A column of numbers."""
        column = self.by_name[name]
        assert not isinstance(column, Texts)
        return column

    def texts(self, name: str) -> Texts:
        """A column of texts."""
        column = self.by_name[name]
        assert isinstance(column, Texts)
        return column

    def head(self, rows: int) -> Columns:
        """The first rows."""
        return Columns({name: _head(column, rows) for name, column in self.by_name.items()})


def _head(column: Column, rows: int) -> Column:
    if isinstance(column, Texts):
        return Texts(column.distinct, column.index[:rows])
    return column[:rows]


def repeated(text: str, rows: int) -> Texts:
    """A column with one text in all of its rows."""
    return Texts((text,), array("q", bytes(8 * rows)))


def numbers(values: NDArray[np.int64 | np.float64]) -> Numbers:
    """A column from a NumPy array of integers or floats, shape (n,)."""
    kind = "d" if values.dtype.kind == "f" else "q"
    return array(kind, values.astype("f8" if kind == "d" else "i8").tobytes())
