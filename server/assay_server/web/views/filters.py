"""What a list on a page shows: a search and a choice for each column, which live in the page's address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

_MOST_CHARACTERS = 200
# The fields of Filter by their names in addresses.
_NAMES = {
    "q": "search",
    "name": "name",
    "gpu": "device",
    "state": "state",
    "flag": "flag",
    "method": "method",
    "sort": "sort",
}


@dataclass(frozen=True)
class Filter:
    """What somebody asked for; "" shows everything.

    ``search``: a part of a name, in any case; ``name``: of campaigns. A choice that a list does not have
    matches nothing.
    """

    search: str = ""
    name: str = ""
    device: str = ""
    state: str = ""
    flag: str = ""
    method: str = ""
    sort: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filter:
        """The filter in the query of an address."""
        texts = {field: query.get(name, "") for name, field in _NAMES.items()}
        return cls(**{field: text[:_MOST_CHARACTERS].strip() for field, text in texts.items()})

    @property
    def query(self) -> dict[str, str]:
        """The query of an address that asks for the same."""
        values = asdict(self)
        return {name: values[field] for name, field in _NAMES.items() if values[field]}

    def finds(self, *names: str) -> bool:
        """Whether one of the names has what is searched for."""
        search_text = self.search.casefold()
        return not search_text or any(search_text in name.casefold() for name in names)

    def address(self, path: str, first: int = 0, **changed: str) -> str:
        """Where a page shows the same with some choices ``changed``, from the place ``first`` on."""
        query = {**self.query, **changed, "from": str(first or "")}
        encoded = urlencode({name: value for name, value in query.items() if value})
        return f"{path}?{encoded}" if encoded else path


NO_FILTER = Filter()


@dataclass(frozen=True)
class Choice:
    """A choice of a filter's form: its name in addresses, its label, and values with their words."""

    name: str
    label: str
    options: tuple[tuple[str, str], ...]


def choice(name: str, label: str, options: Mapping[str, str] | Iterable[str]) -> Choice:
    """A choice of the options in their order; those without words are their own."""
    words = options.items() if isinstance(options, Mapping) else ((each, each) for each in options)
    return Choice(name, label, tuple(words))


@dataclass(frozen=True)
class Shown:
    """A page of a list: its entries, the place of the first of them among all that match, and how many do.

    ``total``: entries of the whole list.
    """

    entries: Sequence[Any]
    first: int
    matching: int
    total: int
    size: int

    @property
    def before(self) -> int | None:
        """Where the page before this one begins; None on the first."""
        return max(0, self.first - self.size) if self.first else None

    @property
    def after(self) -> int | None:
        """Where the next page begins; None on the last."""
        end = self.first + len(self.entries)
        return end if end < self.matching else None


def page_of(matching: Sequence[Any], first: int, size: int, total: int) -> Shown:
    """At most ``size`` of what matches, from the place ``first`` on."""
    return Shown(matching[first : first + size], first, len(matching), total, size)
