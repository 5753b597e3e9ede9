"""The GPUs that our pages name, for tests of what is said about each."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FAMILY = re.compile(r"\b(?:[GR]TX \d{4}(?: Ti)?|(?:[VABH]|GH|GB)\d00S?|T4|L4|L40S?)\b")


def gpus_of_the_docs() -> list[str]:
    """By family, such as "V100" and "RTX 3070", in order, each once."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "campaigns").glob("*.md")]
    return sorted({name for page in pages for name in _FAMILY.findall(page.read_text())})
