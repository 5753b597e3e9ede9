"""What holds for every request: the Host header is ours, bodies are small, and answers carry strict headers.

Sources: docs/security.md, "The live page"; https://www.w3.org/TR/CSP3/.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY_BYTES = 16 << 10
_MOST_TARGET_BYTES = 2_048

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# A report brings its own style and script. In a sandbox it has no origin: no cookie, no request to anybody.
REPORT_POLICY = (
    "sandbox allow-scripts allow-popups; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline' 'unsafe-eval'; img-src data:; font-src data:; frame-ancestors 'none'"
)
# A figure brings its own style for light and dark pages, and nothing else.
FIGURE_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # Not "no-referrer": with it browsers send our own forms with the origin "null" (fetch.spec.whatwg.org).
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_OVER_TLS = {"Strict-Transport-Security": "max-age=31536000"}


class Guarding:
    """The outermost layer of the application.

    Args:
        app: the application itself.
        names: hosts under which browsers may ask, without ports.
        tls: whether it is served over TLS.
    """

    def __init__(self, app: ASGIApp, names: Collection[str], tls: bool) -> None:
        self._app = app
        self._names = frozenset(names)
        self._headers = _HEADERS | (_OVER_TLS if tls else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # there are no WebSockets, and nothing to start
        headers = Headers(scope=scope)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    answer.setdefault(name, value)
            await send(message)

        refused = self._refused(scope, headers)
        if refused is not None:
            await refused(scope, receive, sent)
            return
        await self._app(scope, receive, sent)

    def _refused(self, scope: Scope, headers: Headers) -> PlainTextResponse | None:
        # Another name that leads here is a page of somebody else, who would read our answers (DNS rebinding).
        if len(headers.getlist("host")) != 1 or host_of(headers["host"]) not in self._names:
            return PlainTextResponse("unknown host: the server's --web-name says which it has\n", 421)
        if len(scope.get("raw_path", b"")) + len(scope.get("query_string", b"")) > _MOST_TARGET_BYTES:
            return PlainTextResponse("the address is too long\n", 414)
        length = headers.get("content-length", "0")
        chunked = "transfer-encoding" in headers
        if chunked or not length.isascii() or not length.isdigit() or int(length[:9]) > MOST_BODY_BYTES:
            return PlainTextResponse("the request is too large\n", 413)
        return None


def host_of(header: str) -> str:
    """The host of a Host header in small letters, without its port and the brackets of IPv6."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if ":" in text else text
