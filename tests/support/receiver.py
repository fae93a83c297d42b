"""A real receiver of messages: an HTTP server on this machine that keeps what it is sent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver(ThreadingHTTPServer):
    """Attributes: `bodies` as they came, and how it answers: `status`, after `delay_s`; 0 hangs up without a word."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []
        self.status, self.delay_s = 200, 0.0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook?key=secret"

    @property
    def told(self) -> list[tuple[str, str]]:
        """What changed, and with whom."""
        return [(body["change"], body["incident"]["subject"]) for body in self.bodies]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        assert self.headers["Content-Type"] == "application/json"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        time.sleep(self.server.delay_s)
        if not self.server.status:
            return
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", "/login")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing: a test's output is its own."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver while the block lasts."""
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
