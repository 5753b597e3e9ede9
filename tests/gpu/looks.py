"""Looks at a GPU that nobody has looked at before, each printed as it is found.

python -m tests.gpu.looks nvml                      every query of NVML with its answer or error code
python -m tests.gpu.looks frames FILE PROGRAM ...   the tracer's frames of a program, as they came, in FILE
"""

from __future__ import annotations

import inspect
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from assay_agent.profilers.cupti import require_tracer, tracer_environment
from assay_agent.tracer.protocol import FrameParser, FrameType

# Of each process; what comes after is counted, and not kept.
_MOST_KEPT_BYTES = 2 << 20
_READ_BYTES = 1 << 16


def nvml_answers(nvml: Any, handle: Any) -> Iterator[tuple[str, Any]]:
    """Each query that takes a device alone, or nothing, with its answer or NVML's error; it sets nothing."""
    for name in sorted(vars(nvml)):
        query = getattr(nvml, name)
        if not name.startswith(("nvmlDeviceGet", "nvmlSystemGet")) or not callable(query):
            continue
        parameters = inspect.signature(query).parameters.values()
        given = [handle] if name.startswith("nvmlDeviceGet") else []
        if sum(each.default is inspect.Parameter.empty for each in parameters) == len(given):
            yield name, _answer(lambda query=query, given=given: query(*given))


def _answer(ask: Callable[[], Any]) -> Any:
    try:
        return _plain(ask())
    except Exception as error:  # noqa: BLE001 - the next query may be answered
        return {"error": getattr(error, "value", type(error).__name__), "says": str(error)[:200]}


def _plain(value: Any) -> Any:
    """A value as JSON: structures by their fields."""
    if hasattr(value, "_fields_"):
        return {name: _plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str | int | float | bool | type(None)) else str(value)


def look_at_nvml() -> int:
    """Print every answer for the first GPU; 0 if there is one."""
    import pynvml  # noqa: PLC0415 - only here

    pynvml.nvmlInit()
    for name, answer in nvml_answers(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)):
        print(json.dumps([name, answer]), flush=True)
    return 0


class FrameKeeper:
    """Listens where the tracer connects: keeps the first bytes of each process, and counts its records."""

    def __init__(self, path: Path, keep: Path) -> None:
        self._keep, self._number, self._lock = keep, 0, threading.Lock()
        self.processes: list[dict[str, Any]] = []
        self._readers: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """No more processes; the frames of those that connected are read to their ends."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for reader in self._readers:
            reader.join()

    def _accept(self) -> None:
        while True:
            try:
                channel, _ = self._listener.accept()
            except OSError:
                return
            reader = threading.Thread(target=self._read, args=(channel,), daemon=True)
            self._readers.append(reader)
            reader.start()

    def _read(self, channel: socket.socket) -> None:
        with self._lock:
            number, self._number = self._number, self._number + 1
        parser, counts, kept = FrameParser(), Counter[str](), 0
        found: dict[str, Any] = {"process": number, "records": counts, "problem": ""}
        with channel, self._keep.with_name(f"{self._keep.name}.{number}").open("wb") as file:
            while data := channel.recv(_READ_BYTES):
                file.write(data[: max(0, _MOST_KEPT_BYTES - kept)])
                kept += len(data)
                for frame in parser.feed(data):
                    counts[frame.type.name.lower()] += len(frame.records)
                    if frame.type in (FrameType.HELLO, FrameType.TOTALS, FrameType.END):
                        found[frame.type.name.lower()] = {k: str(v) for k, v in frame.fields.items()}
                    if frame.type is FrameType.PROBLEM:
                        found["problem"] = frame.text
        with self._lock:
            self.processes.append({**found, "bytes": kept})


def look_at_frames(keep: Path, command: Sequence[str]) -> int:
    """Run a program under the tracer, and print what each of its processes sent; its exit status."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        path = Path(folder) / "s"
        keeper = FrameKeeper(path, keep)
        environment = {**os.environ, **tracer_environment(require_tracer(), path)}
        done = subprocess.run(command, env=environment, check=False)
        keeper.close()
    for process in keeper.processes:
        print(json.dumps(process), flush=True)
    return done.returncode


if __name__ == "__main__":
    words = sys.argv[1:]
    if words == ["nvml"]:
        sys.exit(look_at_nvml())
    if words[:1] == ["frames"] and len(words) > 2:
        sys.exit(look_at_frames(Path(words[1]), words[2:]))
    sys.exit(__doc__)
