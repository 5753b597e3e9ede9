"""How far a launch has come, and its samples, from the interval log that its simulator is still writing.

Each sample is a gzip member of its own, so the log can be read as it grows. Source: docs/simulator-files.md,
"Interval log".
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from pathlib import Path

_SAMPLED = re.compile(
    rb"^(ctas_completed|globalcyclecount|globalinsncount|globaltotinsncount): *(\d{1,18})\n", re.MULTILINE
)
_SAMPLE_BEGINS = b"ctas_completed"
_MOST_BYTES = 1 << 24


@dataclass(frozen=True)
class LaunchProgress:
    """Thread blocks that have ended, and instructions per cycle of the launch that runs; None: no sample."""

    blocks: int = 0
    ipc: float | None = None


@dataclass(frozen=True)
class GrowingSample:
    """A sample as printed: cycles and instructions of its launch so far, blocks that ended since the sample
    before, and the instructions of all launches before (0 where the log does not print them)."""

    cycles: int
    instructions: int
    blocks: int
    instructions_before: int


class GrowingIntervals:
    """An interval log that grows; :meth:`look` reads what was added since the last look, :meth:`samples`
    gives each sample once, as soon as the next one has begun."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset, self._blocks = 0, 0
        self._packed, self._text = b"", b""
        self._unpacker = zlib.decompressobj(wbits=31)
        self._last: dict[bytes, int] = {}
        self._samples: list[GrowingSample] = []

    def look(self) -> LaunchProgress:
        """The progress so far; what cannot be read yet, or at all, adds nothing."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                self._packed = file.read(_MOST_BYTES)
                self._offset += len(self._packed)
            self._unpack()
        except (OSError, zlib.error):
            return self._progress()
        end = self._text.rfind(b"\n") + 1
        for name, value in _SAMPLED.findall(self._text[:end]):
            if name == _SAMPLE_BEGINS:
                self._keep_sample()
                self._blocks += int(value)
            self._last[name] = int(value)
        self._text = self._text[end:]
        return self._progress()

    def samples(self) -> list[GrowingSample]:
        """The samples that were added since this was last called."""
        samples, self._samples = self._samples, []
        return samples

    def _keep_sample(self) -> None:
        """Keep the sample that has just ended, if there is one."""
        if {b"globalcyclecount", b"globalinsncount", _SAMPLE_BEGINS} <= self._last.keys():
            self._samples.append(
                GrowingSample(
                    self._last[b"globalcyclecount"],
                    self._last[b"globalinsncount"],
                    self._last[_SAMPLE_BEGINS],
                    self._last.get(b"globaltotinsncount", 0),
                )
            )

    def _unpack(self) -> None:
        while self._packed:
            self._text += self._unpacker.decompress(self._packed)
            self._packed = self._unpacker.unused_data
            if self._unpacker.eof:
                self._unpacker = zlib.decompressobj(wbits=31)

    def _progress(self) -> LaunchProgress:
        cycles = self._last.get(b"globalcyclecount", 0)
        ipc = self._last.get(b"globalinsncount", 0) / cycles if cycles else None
        return LaunchProgress(self._blocks, ipc)
