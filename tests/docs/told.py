"""python told.py LAST: waits until a page tells that it shows this line, and prints what it shows."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

PORT = 8099
TELL = f"""<script>setInterval(() =>
  fetch("http://127.0.0.1:{PORT}/", {{method: "POST", mode: "no-cors", body: document.body.innerText}}),
  100)</script>"""
"""What has a page tell it."""


class Hears(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        said = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.send_response(204)
        self.end_headers()
        if sys.argv[1] in said:
            print(said)
            raise SystemExit

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", PORT), Hears).serve_forever()
