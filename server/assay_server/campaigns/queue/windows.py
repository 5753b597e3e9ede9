"""Maintenance windows: times in which agents get no new runs. Runs that have begun go on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase

from assay_sampling.errors import ParameterError
from assay_server.store.model import Agent

_LABEL = "label:"
_REMEDY = "write AGENT START/END (* for all), or label:LABEL START/END, with times like 2026-12-01T08:00Z"


@dataclass(frozen=True)
class Window:
    """``agents``: a pattern of agents' names with ``*``, or ``label:`` and a label; times are Unix ms."""

    agents: str
    start_ms: int
    end_ms: int

    @property
    def end(self) -> str:
        """When it ends, ISO 8601."""
        return datetime.fromtimestamp(self.end_ms / 1000, UTC).isoformat(timespec="minutes")

    def covers(self, agent: Agent, now_ms: int) -> bool:
        """Whether an agent gets no run now."""
        if not self.start_ms <= now_ms < self.end_ms:
            return False
        if self.agents.startswith(_LABEL):
            return self.agents.removeprefix(_LABEL) in agent.labels
        return fnmatchcase(agent.name, self.agents)


def window_of(windows: Sequence[Window], agent: Agent, now_ms: int) -> Window | None:
    """The window that an agent is in, the one that ends last; None if it is in none."""
    covering = [window for window in windows if window.covers(agent, now_ms)]
    return max(covering, key=lambda window: window.end_ms, default=None)


def windows_of(texts: Iterable[str]) -> tuple[Window, ...]:
    """Windows from their texts, "box-1 2026-12-01T08:00Z/2026-12-01T12:00Z"; raises ParameterError."""
    return tuple(_window(text) for text in texts)


def _window(text: str) -> Window:
    subject = f"maintenance window {text!r}"
    agents, _, times = text.strip().rpartition(" ")
    start, slash, end = times.partition("/")
    agents = agents.strip()
    if not agents or not slash:
        raise ParameterError(subject, "it does not name agents and a time", _REMEDY)
    if agents.startswith(_LABEL) and not agents.removeprefix(_LABEL).strip():
        raise ParameterError(subject, "it names no label, so no agent would be in it", _REMEDY)
    window = Window(agents, _moment(start, subject), _moment(end, subject))
    if window.end_ms <= window.start_ms:
        raise ParameterError(subject, "it ends before it begins", _REMEDY)
    return window


def _moment(text: str, subject: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ParameterError(subject, f"{text!r} is not a time", _REMEDY) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
