"""One page, served to this machine and nobody else."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from nsm.checks import UserError

HERE = "127.0.0.1"


def server(page: str, port: int) -> ThreadingHTTPServer:
    """A server of one page at `/`, on a port that is free if `port` is 0."""
    content = page.encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing: a person looks at the page, not at the terminal."""

    try:
        return ThreadingHTTPServer((HERE, port), Handler)
    except (OSError, OverflowError) as error:
        raise UserError(f"port {port} can't be used: {error}") from None


def serve(page: str, port: int, begun: Callable[[str], object]) -> None:
    """Serve a page until the process is stopped; `begun` is told its address."""
    with server(page, port) as listening:
        begun(f"http://{HERE}:{listening.server_address[1]}/")
        listening.serve_forever()
