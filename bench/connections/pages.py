"""What the measurements of kept connections have in common: a Redis of our own, and pages that ask it."""

import contextlib
import json
import os
import socket
import subprocess
import time

import fpm


class Redis:
    """A server of our own, which a worker reaches by both ways."""

    def __init__(self, place):
        self.folder = f"{place.home}/redis"
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o777)
        self.port, self.path, self.inside = fpm.free_port(), f"{self.folder}/redis.sock", f"{place.inside}/redis/redis.sock"
        self.process = None
        self.start()

    def start(self):
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--unixsocket", self.path, "--unixsocketperm", "777",
                   "--dir", self.folder, "--save", "", "--appendonly", "no"]
        with open(f"{self.folder}/log", "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=fpm.end_with_parent)
        fpm.wait_until(self._answers, "redis-server does not start")
        self.ask("SET", "key", "right")
        self.ask("SET", "large", "x" * 100_000)
        self.ask("ACL", "SETUSER", "other", "on", ">secret", "~*", "+@all")

    def _answers(self):
        with contextlib.suppress(OSError, ValueError):
            return self.ask("PING") == "PONG"
        return False

    def ask(self, *words):
        """The reply's first line, or its text."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as connection, connection.makefile("rwb") as file:
            file.write(f"*{len(words)}\r\n".encode() + b"".join(f"${len(word)}\r\n{word}\r\n".encode() for word in words))
            file.flush()
            line = file.readline().decode().rstrip()
            if line.startswith("$") and line != "$-1":
                return file.read(int(line[1:])).decode()
            if not line or line[0] == "-":
                raise ValueError(f"redis: {line}")
            return line[1:]

    def connections(self):
        """So many have been made so far, without the one that asks."""
        stats = self.ask("INFO", "stats")
        return int(next(line for line in stats.splitlines() if line.startswith("total_connections_received:")).partition(":")[2]) - 1

    def stop(self):
        fpm.stop(self.process)


class Pages:
    """Requests to one pool."""

    def __init__(self, port, way):
        self.client, self.way = fpm.Client(port), way

    def ask(self, do, **query):
        words = "&".join(f"{name}={value}" for name, value in {"do": do, **query}.items())
        begin = time.monotonic()
        response = self.client.ask(f"/{self.way}/page.php?{words}")
        took_s = time.monotonic() - begin
        if response.status != 200:
            raise fpm.Failed(f"{words}: {response.status} {response.body[:200]!r}")
        return {**json.loads(response.body), "took_s": took_s}
