"""Who may ask: a browser on this machine that was given the token, and no page of another origin.

The address that is printed holds a random token. The first visit exchanges it for a cookie that scripts cannot read.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Nothing comes from elsewhere, nothing inline, nothing that turns text into markup.
CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)

_REFUSED = "This page needs the address that msprobe view printed, with its token. Open that address once."
_STRANGE = "This server answers only under the address that it printed."


def new_token() -> str:
    """Gives a token that cannot be guessed."""
    return secrets.token_urlsafe(24)


class Guard:
    """Stands before the application and lets through only who holds the token, under a name of this server.

    Args:
        app: What is guarded.
        token: What the first visit must bring, as ``?token=``.
        hosts: Names, without port, under which the server may be asked.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: tuple[str, ...]) -> None:
        self.app, self.token, self.hosts = app, token, hosts
        self.cookie = f"msprobe-{secrets.token_hex(4)}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        answer = self._refusal(scope, headers)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = {name for name, _ in HEADERS}
                kept = [(name, value) for name, value in message.get("headers", []) if name.lower() not in named]
                message["headers"] = [*kept, *HEADERS]
            await send(message)

        await (answer or self.app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> ASGIApp | None:
        if _host_name(headers.get("host", "")) not in self.hosts:
            return PlainTextResponse(_STRANGE, status_code=400)
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{headers['host']}":
            return PlainTextResponse(_STRANGE, status_code=403)
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if given and hmac.compare_digest(given.encode(), self.token.encode()):
            if scope["method"] != "GET":
                return PlainTextResponse(_REFUSED, status_code=403)
            welcome = RedirectResponse("/", status_code=303)
            welcome.set_cookie(self.cookie, self.token, httponly=True, samesite="strict", path="/")
            return welcome
        if not hmac.compare_digest(self._held(headers).encode(), self.token.encode()):
            return PlainTextResponse(_REFUSED, status_code=403)
        if scope["method"] not in ("GET", "HEAD") and headers.get("x-msprobe") != "1":
            # A form of another site can send a cookie of a lax browser, but no header of its own.
            return PlainTextResponse(_STRANGE, status_code=403)
        return None

    def _held(self, headers: dict[str, str]) -> str:
        for part in headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie:
                return value
        return ""


def _host_name(host: str) -> str:
    """Gives the name of a Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
