"""What the threads of one agent process share: whether the server knows it, and whether it is to end."""

from __future__ import annotations

import threading
import uuid


class Session:
    """One process of an agent as the server sees it. ``session_id`` is new with every process."""

    def __init__(self) -> None:
        self.session_id = uuid.uuid4().hex
        self.stopping = threading.Event()
        self._changed = threading.Condition()
        self._registered = False

    @property
    def registered(self) -> bool:
        return self._registered

    def register(self) -> None:
        """The server knows this process."""
        with self._changed:
            self._registered = True
            self._changed.notify_all()

    def lose(self) -> None:
        """The server does not know this process (any more): it must register again."""
        with self._changed:
            self._registered = False
            self._changed.notify_all()

    def stop(self) -> None:
        """Take no more work."""
        self.stopping.set()
        self.wake()

    def wake(self) -> None:
        """Let whoever waits look again."""
        with self._changed:
            self._changed.notify_all()

    def wait_registered(self) -> bool:
        """Wait until the server knows this process; False where it is stopping."""
        with self._changed:
            self._changed.wait_for(lambda: self._registered or self.stopping.is_set())
        return not self.stopping.is_set()

    def wait_for_change(self, seconds: float) -> None:
        """Wait until the session is lost or :meth:`wake` is called, at most so long."""
        with self._changed:
            if self._registered:
                self._changed.wait(seconds)
