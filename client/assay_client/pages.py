"""The installed documentation: pages by name, in the order of the index.

The pages have one source, ``docs/`` and ``campaigns/`` of the repository; the wheel copies them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from assay_sampling.errors import AssayError, ParameterError, StorageError

CAMPAIGNS = "campaigns"
_OPENING = "Begin here"
_SECTION = re.compile(r"^## (.+)$")
_ROW = re.compile(r"^\| \[[^\]]+\]\(([^)]+)\) \| (.+) \|$")


@dataclass(frozen=True)
class Page:
    """A page: its name for ``assay docs``, its section in the index, what it is about, its file.

    A campaign to start from is a page too: its name ends in ``.yaml``.
    """

    name: str
    section: str
    about: str
    path: Path
    written: str = ""

    @property
    def text(self) -> str:
        """The source of the page: Markdown, or a campaign file; ``written`` is of a page without a file."""
        if self.written:
            return self.written
        try:
            return self.path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(
                str(self.path), f"it cannot be read ({error})", "install Assay again"
            ) from error

    @property
    def title(self) -> str:
        """Its first heading; for a campaign file its name."""
        first = self.text.partition("\n")[0]
        return first.removeprefix("# ") if self.path.suffix == ".md" else self.name


def folder(name: str) -> Path:
    """The folder of ``docs`` or ``campaigns``: in the installed package, or in the checkout.

    Raises StorageError if neither has it.
    """
    packaged = Path(__file__).with_name(name)
    for candidate in (packaged, Path(__file__).resolve().parents[2] / name):
        if (candidate / "README.md").is_file():
            return candidate
    raise StorageError(str(packaged), "it is not there", "install Assay again")


@cache
def pages() -> Mapping[str, Page]:
    """All pages by name, in the order of the index; raises StorageError if they are not installed."""
    ours = {page.name: page for page in (*_indexed(), *_campaigns())}
    # A package cannot take the place of a page of ours.
    return MappingProxyType({**{page.name: page for page in _methods_of_others()}, **ours})


def _methods_of_others() -> Iterator[Page]:
    """A page for each method of another package; one that cannot be loaded says why."""
    from assay_sampling.methods.plug_ins import PlugIn  # noqa: PLC0415 - few have any, and they load Arrow
    from assay_sampling.methods.registry import methods_of_others, samplers  # noqa: PLC0415

    for name in methods_of_others():
        try:
            method = samplers()[name]
            assert isinstance(method, PlugIn)
            about, text = method.about(), method.page()
        except AssayError as error:
            about, text = "it cannot be loaded", f"# {name}\n\n{error}\n"
        yield Page(name, "Methods of other packages", about, Path(f"{name}.md"), text)


def _indexed() -> Iterator[Page]:
    docs = folder("docs")
    index = docs / "README.md"
    yield Page("tutorial", _OPENING, "the first hour: from an empty folder to a report, without a GPU",
               docs / "tutorial.md")  # fmt: skip
    section = _OPENING
    for line in index.read_text("utf-8").splitlines():
        if match := _SECTION.match(line):
            section = match[1]
        elif match := _ROW.match(line):
            path = folder(CAMPAIGNS) / "README.md" if CAMPAIGNS in match[1] else docs / match[1]
            yield Page(page_name(match[1]), section, match[2], path)


def suites() -> tuple[str, ...]:
    """The names of the campaigns to start from, for programs on real GPUs."""
    return tuple(page.path.stem for page in _campaigns())


def _campaigns() -> Iterator[Page]:
    campaigns = folder(CAMPAIGNS)
    for line in (campaigns / "README.md").read_text("utf-8").splitlines():
        match = _ROW.match(line)
        # The demo's campaign needs its workloads, which only `assay demo` writes.
        if match and match[1] != "virtual.yaml":
            yield Page(
                match[1], "Campaigns to start from", match[2].partition(" | ")[0], campaigns / match[1]
            )


def page_name(target: str) -> str:
    """The page's name in a link or a person's spelling: ``docs/failures.md#x`` is ``failures``."""
    path = Path(target.partition("#")[0])
    if path.name == "README.md" and path.parent.name:
        return path.parent.name
    return path.name.removesuffix(".md")


def find_page(text: str) -> Page:
    """A page by its name, or by its file's name or path; raises ParameterError for an unknown page."""
    by_name = pages()
    name = page_name(text)
    for candidate in (name, name.casefold()):
        if candidate in by_name:
            return by_name[candidate]
    close = difflib.get_close_matches(name, by_name, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ParameterError("PAGE", f"there is no page {text!r}", f"{hint}assay docs lists all pages")
