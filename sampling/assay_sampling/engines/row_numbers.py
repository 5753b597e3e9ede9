"""Numbers of rows for an engine beyond memory: in the order of the rows, and short.

A number makes an order total, as the last key of a sort. DuckDB sorts keys of up to 24 bytes, one for each
column included, as fixed-size records, and longer ones, with records on the heap, in 1.7 times the CPU. Two
64-bit keys leave room for a number of 32 bits, and for no 64-bit one (docs/scale.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class RowNumbers:
    """Numbers of the rows of files of these ``lengths``: place of the file x rows of the longest + place
    in the file. Rows that come as one stream are one file.
    """

    lengths: tuple[int, ...]

    @property
    def longest(self) -> int:
        """Rows of the longest file."""
        return max(1, *self.lengths)

    @property
    def kind(self) -> pa.DataType:
        """The type of a number: 32 bits where they hold it."""
        return pa.uint32() if len(self.lengths) * self.longest <= 1 << 32 else pa.int64()

    def in_files(self) -> str:
        """The number as SQL over DuckDB's ``file_index`` and ``file_row_number``."""
        kind = "UINTEGER" if self.kind == pa.uint32() else "BIGINT"
        row = f"CAST(file_row_number AS {kind})"
        if len(self.lengths) == 1:
            return row
        return f"CAST(file_index AS {kind}) * CAST({self.longest} AS {kind}) + {row}"

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """The rows, counted over all files, int64, that have these numbers."""
        file, row = np.divmod(numbers.astype(np.int64), self.longest)
        overall: np.ndarray = (np.cumsum(self.lengths) - self.lengths)[file] + row
        return overall
