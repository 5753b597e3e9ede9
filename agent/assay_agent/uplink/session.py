"""State shared by the threads of an agent process: whether the server knows it, whether it must end."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field

from assay_core.records.attempt import AttemptKey, Claim


@dataclass(frozen=True)
class Identity:
    """The sender: the agent, and its process, to which the server binds the attempts that it leases."""

    agent_id: str
    session_id: str = field(repr=False)

    def claim(self, key: AttemptKey, secret: bytes) -> Claim:
        """Proof that this process holds the lease of an attempt."""
        return Claim(key, self.agent_id, self.session_id, secret)


class Session:
    """One process of an agent as the server sees it. ``session_id`` is new with every process."""

    def __init__(self) -> None:
        self.session_id = uuid.uuid4().hex
        self.stopping = threading.Event()
        self._changed = threading.Condition()
        self._registered = False
        self._announced = 0

    @property
    def registered(self) -> bool:
        return self._registered

    @property
    def announced(self) -> int:
        """How often :meth:`announce` was called; read it before collecting what to register."""
        return self._announced

    def register(self, announced: int | None = None) -> None:
        """The server knows this process, as it was after ``announced`` announcements (None: as it is)."""
        with self._changed:
            self._registered = announced in (None, self._announced)
            self._changed.notify_all()

    def announce(self) -> None:
        """The registration has changed, so register again, even if one is under way."""
        with self._changed:
            self._announced += 1
            self._registered = False
            self._changed.notify_all()

    def lose(self) -> None:
        """The server does not (or no longer) know this process: it must register again."""
        with self._changed:
            self._registered = False
            self._changed.notify_all()

    def stop(self) -> None:
        """Take no more work."""
        self.stopping.set()
        self.wake()

    def wake(self) -> None:
        """Wake the threads that wait."""
        with self._changed:
            self._changed.notify_all()

    def wait_registered(self, seconds: float | None = None) -> bool:
        """Wait until the server knows this process, ``seconds`` at most; False if it is stopping."""
        with self._changed:
            self._changed.wait_for(lambda: self._registered or self.stopping.is_set(), seconds)
        return not self.stopping.is_set()

    def wait_for_change(self, seconds: float) -> None:
        """Wait until the session is lost or :meth:`wake` is called, at most that long."""
        with self._changed:
            if self._registered:
                self._changed.wait(seconds)
