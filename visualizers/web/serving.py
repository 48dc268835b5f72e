"""Serves the pages on this machine until the user ends it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from msprobe.core.errors import MsprobeError
from msprobe.visualizers.web.app import PAGES, make_app
from msprobe.visualizers.web.security import new_token

if TYPE_CHECKING:
    from msprobe.visualizers.web.workspace import Workspace

LOOPBACK = "127.0.0.1"


class ServingError(MsprobeError):
    """The pages cannot be served: the port is taken, or they were never built."""


def serve(workspace: Workspace, *, host: str = LOOPBACK, port: int = 0, ready: Callable[[str], None] = print) -> None:
    """Serves until interrupted; ``ready`` gets the address to open.

    Raises:
        ServingError: The port is taken, or this checkout has no built pages.
    """
    import uvicorn

    if not (PAGES / "index.html").is_file():
        raise ServingError(
            "the pages are not built in this checkout. Run: make web (needs Node.js 20), or install a wheel."
        )
    listening = _listen(host, port)
    token = new_token()
    name, number = listening.getsockname()[:2]
    hosts = ("127.0.0.1", "localhost", "[::1]") if host == LOOPBACK else ("127.0.0.1", "localhost", "[::1]", host, name)
    config = uvicorn.Config(make_app(workspace, token, hosts), log_level="warning", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    ready(f"http://{host}:{number}/?token={token}")
    server.run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()  # a browser that comes before the server is up waits instead of being refused
    except OSError as error:
        listening.close()
        reason = error.strerror or error
        raise ServingError(f"cannot listen on {host}:{port}: {reason}. Choose another port, or 0 for any.") from error
    return listening
