"""How large the house is: lines by package, long files, modules on two paths, settings and limits.

python -m tests.house [--names]

Prints numbers; nothing fails because of them.
"""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from assay_agent.config import AgentSettings
from assay_client.settings import ClientSettings
from assay_server.config import ServerSettings
from assay_server.limits import DEFAULT_LIMITS
from tests.house.modules_called import modules_called

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("protos", "sampling", "agent", "server", "client")
LONG_FILE_LINES = 450


def packages() -> list[Path]:
    """The folder of each product package; ``assay_protos`` is generated from ``.proto`` files."""
    every = [path.parent for folder in FOLDERS for path in (ROOT / folder).glob("*/__init__.py")]
    return sorted(path for path in every if path.name != "assay_protos")


def lines_by_file(folder: Path) -> dict[Path, int]:
    """Lines of each Python file below a folder, blank lines and comments included."""
    return {path: len(path.read_text().splitlines()) for path in sorted(folder.rglob("*.py"))}


def settings_and_limits() -> tuple[int, int]:
    """How many settings the three programs have, and how many limits the server has."""
    settings = sum(len(list(each.declared())) for each in (ServerSettings, AgentSettings, ClientSettings))
    groups = (getattr(DEFAULT_LIMITS, group.name) for group in fields(DEFAULT_LIMITS))
    return settings, sum(len(fields(group)) for group in groups)


def main() -> None:
    """Print every number."""
    parser = argparse.ArgumentParser(prog="python -m tests.house")
    parser.add_argument("--names", action="store_true", help="name the modules on the two paths")
    names = parser.parse_args().names
    lines = {folder.name: lines_by_file(folder) for folder in packages()}
    print("hand-written lines of product Python")
    for name, files in lines.items():
        print(f"  {name:16} {sum(files.values()):8,}  in {len(files):5,} files")
    print(f"  {'all':16} {sum(sum(files.values()) for files in lines.values()):8,}")

    every = {path: count for files in lines.values() for path, count in files.items()}
    long = {path: count for path, count in every.items() if count > LONG_FILE_LINES}
    print(f"files above {LONG_FILE_LINES} lines: {len(long)}")
    for path, count in sorted(long.items(), key=lambda each: -each[1]):
        print(f"  {count:6,}  {path.relative_to(ROOT)}")

    for call, modules in modules_called().items():
        print(f"modules that {call} passes in the server: {len(modules)}")
        for name in sorted(modules) if names else ():
            print(f"  {name}")
    settings, limits = settings_and_limits()
    print(f"settings and limits: {settings} + {limits} = {settings + limits}")


if __name__ == "__main__":
    main()
