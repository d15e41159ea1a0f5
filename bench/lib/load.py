"""The same requests over and over, on connections that are kept: CPU time can be divided by them, as nothing is under way in between."""

import socket
import threading
from urllib.parse import urlsplit


def fetch(connection, path, host):
    """One request on a kept connection; reads the whole response."""
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65_536)
    head, body = data.split(b"\r\n\r\n", 1)
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise SystemExit(f"error: {path} answers {head.splitlines()[0]!r}")
    if b"chunked" in head.lower():
        while not body.endswith(b"0\r\n\r\n"):
            body += connection.recv(65_536)
    else:
        length = int([line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")][0].split(b":")[1])
        while len(body) < length:
            body += connection.recv(65_536)


class Load:
    """Connections that send the same requests in each slice."""

    def __init__(self, url, connections, requests, paths):
        self.host = urlsplit(url).netloc
        address = (urlsplit(url).hostname, urlsplit(url).port)
        self.sockets = [socket.create_connection(address) for _ in range(connections)]
        self.requests, self.paths = requests, paths

    def slice(self):
        """Sends all requests and waits for all answers."""

        def work(connection, first):
            for number in range(first, self.requests, len(self.sockets)):
                fetch(connection, self.paths[number % len(self.paths)], self.host)

        threads = [threading.Thread(target=work, args=(s, n)) for n, s in enumerate(self.sockets)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
