"""One page, served to this machine only."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from nsm.checks import UserError

HERE = "127.0.0.1"
NAMES = {HERE, "localhost", "[::1]"}
"""The names of this machine."""


def server(page: str, port: int) -> ThreadingHTTPServer:
    """A server of one page at `/`; port 0 stands for any free port."""
    content = page.encode()

    class Handler(BaseHTTPRequestHandler):
        def handle(self) -> None:
            with suppress(ConnectionError):  # the browser has gone
                super().handle()

        def do_GET(self) -> None:
            if self._found():
                self.wfile.write(content)

        def do_HEAD(self) -> None:
            self._found()

        def _found(self) -> bool:
            """Whether the request is for the page, under a name of this machine; sends the headers."""
            # DNS rebinding: a foreign page whose name resolves to this machine could read ours.
            if not (names := self.headers.get_all("Host", [])) or not {*map(str.lower, names)} <= self._ours():
                self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
                return False
            if self.path != "/":
                self.send_error(HTTPStatus.NOT_FOUND)
                return False
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            return True

        def _ours(self) -> set[str]:
            """The hosts this server answers to; browsers leave out port 80."""
            served = listening.server_port
            return {f"{name}:{served}" for name in NAMES} | (NAMES if served == 80 else set())

        def log_message(self, *_: object) -> None:
            """Requests are not logged."""

    try:
        listening = ThreadingHTTPServer((HERE, port), Handler)
    except (OSError, OverflowError) as error:
        raise UserError(f"port {port} can't be used: {error}; choose another one with --port") from None
    return listening


def serve(page: str, port: int, begun: Callable[[str], object]) -> None:
    """Serve a page until the process is stopped; `begun` is called with its address."""
    with server(page, port) as listening:
        begun(f"http://{HERE}:{listening.server_address[1]}/")
        listening.serve_forever()
