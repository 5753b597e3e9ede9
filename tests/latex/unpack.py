"""Put Debian's TeX Live, as much of it as compiles a report, into a cache folder; no root needed.

    python3 tests/latex/unpack.py --cache DIR

What is there already is left as it is. If it cannot be had, the reason is printed and kept in
DIR/unavailable.json, and the exit status is 0: the tests are skipped with that reason. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, by make

from real_tools import root
from real_tools.root import Wanted

_DIST = "usr/share/texlive/texmf-dist"
TEX = Wanted(
    name="TeX Live",
    # booktabs is in latex-recommended; the others are what a machine with a part of TeX may have already.
    packages=(
        "texlive-latex-recommended",
        "texlive-latex-base",
        "texlive-base",
        "texlive-binaries",
        "lmodern",
    ),
    proof=f"{_DIST}/tex/latex/booktabs/booktabs.sty",
)
_FORMAT = "pdflatex.fmt"


def environment(cache: Path) -> dict[str, str]:
    """What pdftex needs to find its files in the cache, and nothing of the machine's own TeX."""
    folder = root.root(cache).absolute()
    own = folder / "assay"
    own.mkdir(exist_ok=True)
    (own / "texmf.cnf").write_text(
        f"TEXMFDIST = {folder}/{_DIST}\nTEXMFVAR = {own}\nTEXMFHOME = {own}\nTEXMFCONFIG = {own}\n"
        f"TEXMFLOCAL = {own}\nTEXMF = {{{own},{folder}/usr/share/texmf,$TEXMFDIST}}\n"
        f"TEXMFDBS = {own}\nopenout_any = p\nshell_escape = f\n"
    )
    maps = sorted((folder / "usr/share").glob("**/fonts/map/dvips/*/lm*.map"))
    (own / "pdftex.map").write_bytes(b"".join(path.read_bytes() for path in maps))
    (own / "language.dat").write_text("english hyphen.tex\n=usenglish\n")
    return {
        **os.environ,
        "TEXMFCNF": f"{own}:{folder}/{_DIST}/web2c",
        "TEXFORMATS": str(own),
        "TEXFONTMAPS": str(own),
        "MKTEXPK": "0",
        "TEXINPUTS": f".:{own}:",
        "LD_LIBRARY_PATH": str(folder / root.LIBRARIES),
        "PATH": f"{folder}/usr/bin:/usr/bin:/bin",
    }


def compile_pdf(cache: Path, source: Path) -> subprocess.CompletedProcess[str]:
    """Run pdflatex on a file in its own folder; shell escape is off."""
    folder = root.root(cache).absolute()
    if not (folder / "assay" / _FORMAT).is_file():
        command = ["pdftex", "-ini", "-jobname=pdflatex", "-progname=pdflatex", "-etex", "pdflatex.ini"]
        _run(command, cache, folder / "assay")
    maps = ["pdftex", "-fmt=pdflatex", "-progname=pdflatex", "-interaction=nonstopmode", "-halt-on-error",
            "-no-shell-escape", source.name]  # fmt: skip
    return _run(maps, cache, source.parent)


def _run(command: list[str], cache: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment(cache), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", timeout=300, check=False,
    )  # fmt: skip


def main() -> int:
    """Fetch it if it is missing; 0 also where it cannot be had, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="the folder that holds it")
    cache = parser.parse_args().cache
    reason = root.provide(cache, TEX)
    print(f"latex: {'no TeX Live: ' + reason if reason else root.root(cache)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
