"""Build the real Accel-Sim into a cache folder: ``make simulator``.

    python3 tests/simulator/build.py --cache DIR --source FOLDER

FOLDER is an accel-sim-framework (with gpgpu-sim in its gpu-simulator, and CUDA_INSTALL_PATH set), which is
built where it is and linked from the cache, or the folder of archives beside the checkout with its build.sh.
What is in the cache is left as it is. Where neither is there the reason is printed, and the exit status is 0:
the tests are skipped with it. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path("accel-sim/gpu-simulator/bin/release/accel-sim.out")


def main() -> int:
    """0 also where there is nothing to build, 1 where a build fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    given = parser.parse_args()
    cache, source = given.cache.absolute(), given.source.absolute()
    if (cache / PROGRAM).is_file():
        print(f"simulator: {cache / PROGRAM}")
        return 0
    if (source / "build.sh").is_file():
        return subprocess.run(["bash", source / "build.sh", cache], check=False).returncode
    if (source / "gpu-simulator" / "setup_environment.sh").is_file():
        return _build_in_place(source, cache)
    print(f"simulator: none: {source} is no accel-sim-framework, and no folder of archives with build.sh")
    return 0


def _build_in_place(source: Path, cache: Path) -> int:
    script = 'source ./setup_environment.sh && make -j"$(nproc)"'
    ended = subprocess.run(["bash", "-c", script], cwd=source / "gpu-simulator", check=False, env=os.environ)
    if ended.returncode == 0:
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "accel-sim").symlink_to(source)
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main())
