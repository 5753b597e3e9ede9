"""Makes the golden set anew: ``python -m tests.golden [CASE...]``. Only for a case that is new, or after a
decision that a number may change."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from golden.cases import CASES, dumped
from golden.comparing import kept
from golden.running import workplace

EXPECTED = Path(__file__).parent / "expected"


def main(names: list[str]) -> None:
    """Run the cases named, or all, and keep what they give."""
    EXPECTED.mkdir(exist_ok=True)
    for name in names or CASES:
        began = time.monotonic()
        expected = EXPECTED / f"{name}.json"
        golden = json.loads(expected.read_text()) if expected.exists() else None
        with tempfile.TemporaryDirectory(prefix="assay-") as folder, workplace(Path(folder)):
            steps = kept(json.loads(json.dumps(CASES[name]())), folder, golden)
        expected.write_text(dumped(steps))
        print(f"{name}: {len(steps)} command lines, {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
