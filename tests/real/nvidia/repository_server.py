"""Serves a folder for each host name, on the loopback's port 80 and, with TLS, 443.

`python repository_server.py FOLDER CERTIFICATE LOG`, in a network namespace of its own. LOG gets a
line for each request. Imports nothing of ours.
"""

import ssl
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER, CERTIFICATE, LOG = map(Path, sys.argv[1:])


class Handler(SimpleHTTPRequestHandler):
    def translate_path(self, path: str) -> str:
        self.directory = str(FOLDER / self.headers["Host"])
        return super().translate_path(path)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        with LOG.open("a") as log:
            log.write(f"{self.headers['Host']} {format % args}\n")


plain = ThreadingHTTPServer(("127.0.0.1", 80), Handler)
secure = ThreadingHTTPServer(("127.0.0.1", 443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERTIFICATE)
secure.socket = context.wrap_socket(secure.socket, server_side=True)
threading.Thread(target=secure.serve_forever, daemon=True).start()
print("ready", flush=True)
plain.serve_forever()
