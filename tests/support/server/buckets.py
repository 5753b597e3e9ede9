"""Buckets for tests: in this process, with faults as some servers have them."""

from __future__ import annotations

import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit


class TinyS3:
    """A server with objects in memory that answers what a store needs: PUT (and copy), GET, HEAD, removal.

    ``keeps_conditions`` False: it ignores If-None-Match, as rclone serve s3 and juicefs gateway do.
    ``refusal``: the status, code and how often it is given instead of an answer; -1: always.
    ``silent``: so many requests are taken and never answered, as by a machine without power.
    """

    def __init__(self, *, keeps_conditions: bool = True) -> None:
        self.keeps_conditions = keeps_conditions
        self.refusal: tuple[int, str, int] = (0, "", 0)
        self.objects: dict[str, bytes] = {}
        self.silent = 0
        self.ended = Event()
        self.requests = 0
        self._server = _Server(self)
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def refused(self) -> tuple[int, str] | None:
        """The refusal that is due now."""
        self.requests += 1
        status, code, left = self.refusal
        if not left:
            return None
        self.refusal = (status, code, left - 1 if left > 0 else left)
        return status, code


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_PUT(self) -> None:
        data, objects = self._body(), self.server.tiny.objects
        absent = self.headers.get("If-None-Match") == "*" and self.server.tiny.keeps_conditions
        if self._refused():
            return
        if source := self.headers.get("x-amz-copy-source"):
            objects[self._name] = objects[f"/{unquote(source).lstrip('/')}"]
            self._answer(200, b"<CopyObjectResult><ETag>tag</ETag></CopyObjectResult>")
        elif absent and self._name in objects:
            self._answer(412, _error("PreconditionFailed"))
        else:
            objects[self._name] = data
            self._answer(200)

    def do_GET(self) -> None:
        if not self._refused():
            data = self.server.tiny.objects.get(self._name)
            self._answer(404, _error("NoSuchKey")) if data is None else self._answer(200, data)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Remove the objects that the body names."""
        body = self._body()
        if self._refused():
            return
        keys = re.findall(rb"<Key>([^<]*)</Key>", body)
        for key in keys:
            self.server.tiny.objects.pop(f"{self._name}/{key.decode()}", None)
        told = b"".join(b"<Deleted><Key>%s</Key></Deleted>" % key for key in keys)
        self._answer(200, b"<DeleteResult>%s</DeleteResult>" % told)

    @property
    def _name(self) -> str:
        return unquote(urlsplit(self.path).path).rstrip("/")

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _refused(self) -> bool:
        tiny = self.server.tiny
        if tiny.silent:
            tiny.silent -= 1
            self.close_connection = tiny.ended.wait(60)
            return True
        found = tiny.refused()
        if found is not None:
            self._answer(found[0], _error(found[1]))
        return found is not None

    def _answer(self, status: int, data: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", '"tag"')
        self.send_header("Last-Modified", "Mon, 23 Nov 2026 04:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Tests need no log of requests."""


class _Server(ThreadingHTTPServer):
    def __init__(self, tiny: TinyS3) -> None:
        self.tiny = tiny
        super().__init__(("127.0.0.1", 0), _Handler)


def _error(code: str) -> bytes:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'.encode()
