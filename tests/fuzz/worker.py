"""The process that reads mutated inputs, one after the other: ``python -m tests.fuzz.worker``.

Each line of standard input is a target and a path, as JSON; each answer one JSON line: ``outcome`` (read,
refused, untyped), ``error``, ``seconds``, ``peak_bytes``: the most memory it held above what it had before.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from assay_sampling.errors import AssayError
from tests.fuzz.targets import TARGETS

# Far above what fails: an input must not take down the machine on which it is found.
_ADDRESSES_BYTES = 3 << 30
_STATUS = Path("/proc/self/status")


def _memory(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10


def feed(target: str, path: Path) -> dict[str, Any]:
    """Read one input."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the highest memory so far
    before, began = _memory("VmRSS"), time.process_time()
    answer: dict[str, Any] = {"outcome": "read", "error": ""}
    try:
        TARGETS[target].feed(path)
    except AssayError as error:
        answer = {"outcome": "refused", "error": str(error)}
        try:
            f"{error}".encode()
        except UnicodeEncodeError:
            answer = {"outcome": "untyped", "error": f"a message that cannot be printed: {str(error)!r}"}
    except BaseException:  # noqa: BLE001  # whatever it is, it is what is looked for
        answer = {"outcome": "untyped", "error": traceback.format_exc(limit=-12)}
    # Of the processor: other work on the machine is no fault of the input.
    seconds = time.process_time() - began
    return {**answer, "seconds": seconds, "peak_bytes": _memory("VmHWM") - before}


def main() -> None:
    """Answer until standard input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (_memory("VmSize") + _ADDRESSES_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        target, path = json.loads(line)
        answer = feed(target, Path(path))
        answer["error"] = answer["error"].encode("utf-8", "backslashreplace").decode()[-6000:]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
