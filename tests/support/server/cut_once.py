"""A wire to a server's socket that is cut once, in the middle of what somebody sends."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_PIECE_BYTES = 1 << 16


class CutOnce:
    """Listens at ``path``, and passes everything on until ``after_bytes`` were sent to the server.

    Then nothing passes until :meth:`cut`, with which all connections break, and new ones wait for ``mended``.
    A cut that comes earlier does the same: what connects again at once waits too.
    """

    def __init__(self, address: str, path: Path, after_bytes: int) -> None:
        self._to = address.removeprefix("unix:")
        self._left = after_bytes
        self.mended = threading.Event()
        self.bytes_after_cut = 0
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def _is_cut(self) -> bool:
        return self._left <= 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.mended.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._break()
        self._thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                if self._is_cut:
                    self.mended.wait()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._to)
                with self._lock:
                    if self._is_cut and not self.mended.is_set():  # it was cut in between
                        near.close()
                        far.close()
                        continue
                    self._open += [near, far]
                for source, target, counted in ((near, far, True), (far, near, False)):
                    threading.Thread(
                        target=self._pass_on, args=(source, target, counted), daemon=True
                    ).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE_BYTES):
                target.sendall(data)
                if counted:
                    self._count(len(data))
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _count(self, size: int) -> None:
        if self._is_cut:
            self.bytes_after_cut += size
            return
        self._left -= size
        if self._is_cut:
            self.mended.wait()  # holds the rest back

    def cut(self) -> None:
        """Break all connections; what connects from now on waits for ``mended``."""
        with self._lock:
            self._left = 0
        self._break()

    def _break(self) -> None:
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
            self._open.clear()
