"""Put Debian's headless Chromium and fonts into a cache folder; nothing is installed, no root needed.

    python3 tests/browser/unpack.py --cache DIR

What is there already is left as it is. If it cannot be had, the reason is printed and kept in
DIR/unavailable.json, and the exit status is 0: the tests are skipped with that reason. Standard library only.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, by make

from real_tools import root
from real_tools.root import Wanted

CHROMIUM = Wanted(
    name="Chromium",
    packages=("chromium-headless-shell", "fonts-liberation", "fontconfig-config"),
    proof="usr/lib/chromium/chromium-headless-shell",
)
# Where the browser finds letters: a machine without a screen has no fonts of its own.
_FONTS = """\
<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{folder}/usr/share/fonts</dir><cachedir>{folder}/font-cache</cachedir>
<alias binding="same"><family>Arial</family><accept><family>Liberation Sans</family></accept></alias>
<alias><family>monospace</family><prefer><family>Liberation Mono</family></prefer></alias>
<match><edit name="family" mode="append_last"><string>Liberation Sans</string></edit></match></fontconfig>
"""


def program(cache: Path) -> Path:
    """The browser."""
    return root.root(cache) / CHROMIUM.proof


def environment(cache: Path) -> dict[str, str]:
    """What its process needs to find its libraries and fonts; the fonts' file is written for it."""
    folder = root.root(cache).absolute()
    fonts = folder / "fonts.conf"
    if not fonts.is_file():
        fonts.write_text(_FONTS.format(folder=folder))
    libraries = ":".join(str(folder / part) for part in (root.LIBRARIES, f"{root.LIBRARIES}/pulseaudio"))
    return {"LD_LIBRARY_PATH": libraries, "FONTCONFIG_FILE": str(fonts)}


def main() -> int:
    """Fetch it if it is missing; 0 also where it cannot be had, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="the folder that holds it")
    cache = parser.parse_args().cache
    reason = root.provide(cache, CHROMIUM)
    print(f"browser: {'no Chromium: ' + reason if reason else program(cache)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
