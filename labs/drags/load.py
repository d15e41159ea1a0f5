#!/usr/bin/python3
"""Requests for one lab, and what is beside it: programs that take the CPU, a client that keeps Redis busy, a machine short of memory.

Prints one JSON line with what came back: how many requests, how long they took, and how long their drag did by their own clock, which
is the last line of each response: at least and at most, which is the same where there is one number. ADDRESS is
``fpm:SOCKET:SCRIPT[?QUERY]``, ``http:PORT:PATH``, or ``file:PATH``, where nothing is asked and the line is what a program has left there.
"""

import argparse
import contextlib
import json
import math
import os
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

TIMEOUT_S = 60
READ_BYTES = 65_536

FCGI_BEGIN, FCGI_PARAMS, FCGI_STDIN, FCGI_STDOUT, FCGI_END = 1, 4, 5, 6, 3


def fcgi_record(kind, content):
    return struct.pack("!BBHHBx", 1, kind, 1, len(content), 0) + content


def fcgi_pair(name, value):
    name, value = name.encode(), value.encode()
    # One byte for a short length, four for a long one.
    lengths = (bytes([size]) if size < 128 else struct.pack("!I", size | 1 << 31) for size in (len(name), len(value)))
    return b"".join(lengths) + name + value


class Pool:
    """A pool of PHP-FPM. As web servers do, it takes a new connection for each request."""

    def __init__(self, path, script):
        self.path = path
        self.script, _, self.query = script.partition("?")

    def ask(self, number):
        query = f"{self.query}&n={number}".lstrip("&")
        name = "/" + os.path.basename(self.script)
        parameters = {
            "SCRIPT_FILENAME": self.script, "SCRIPT_NAME": name, "REQUEST_URI": f"{name}?{query}", "QUERY_STRING": query,
            "REQUEST_METHOD": "GET", "SERVER_PROTOCOL": "HTTP/1.1", "GATEWAY_INTERFACE": "CGI/1.1",
        }
        pairs = b"".join(fcgi_pair(name, value) for name, value in parameters.items())
        begin = fcgi_record(FCGI_BEGIN, struct.pack("!HB5x", 1, 0))
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(self.path)
            connection.sendall(begin + fcgi_record(FCGI_PARAMS, pairs) + fcgi_record(FCGI_PARAMS, b"") + fcgi_record(FCGI_STDIN, b""))
            data = b""
            while more := connection.recv(READ_BYTES):
                data += more
        return self.read(data)

    @staticmethod
    def read(data):
        output, at = b"", 0
        while at + 8 <= len(data):
            kind, size, padding = struct.unpack_from("!xBxxHBx", data, at)
            if kind == FCGI_STDOUT:
                output += data[at + 8 : at + 8 + size]
            at += 8 + size + padding
        head, _, body = output.partition(b"\r\n\r\n")
        if b"Status:" in head:
            raise ValueError(head.decode(errors="replace"))
        return body


class Service:
    """A service that speaks HTTP. A connection is kept if the service keeps it."""

    def __init__(self, port, path):
        self.port, self.path, self.kept = int(port), path, threading.local()

    def ask(self, number):
        mark = "&" if "?" in self.path else "?"
        request = f"GET {self.path}{mark}n={number} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        connection = getattr(self.kept, "connection", None)
        self.kept.connection = None
        if connection is None:
            connection = socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(request)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.more(connection)
        head, _, body = data.partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise ValueError(head.decode(errors="replace"))
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        while len(body) < int(fields[b"content-length"]):
            body += self.more(connection)
        if fields.get(b"connection") == b"close":
            connection.close()
        else:
            self.kept.connection = connection
        return body

    @staticmethod
    def more(connection):
        data = connection.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the response was cut off")
        return data


def drag_of(body):
    """By the page's own clock, nanoseconds: at least, at most."""
    numbers = [int(word) for word in body.rsplit(b"\n", 1)[-1].split()]
    return min(numbers), max(numbers)


class Client(threading.Thread):
    """Asks again and again, with a pause between."""

    def __init__(self, server, options, ends, first):
        super().__init__(daemon=True)
        self.server, self.options, self.ends, self.first = server, options, ends, first
        self.took_ns, self.drag_ns, self.ended_ns, self.errors = [], [], [], []

    def run(self):
        number = self.first
        asked = 0
        while not self.ends.is_set() and (not self.options.requests or asked < self.options.requests):
            begin = time.perf_counter_ns()
            try:
                body = self.server.ask(number)
                self.took_ns.append(time.perf_counter_ns() - begin)
                self.drag_ns.append(drag_of(body))
                self.ended_ns.append(time.time_ns())
                if self.options.moves_out:
                    move_out(self.options.group)
            except (OSError, ValueError) as error:
                self.errors.append(str(error))
                time.sleep(0.1)
            number += self.options.clients
            asked += 1
            if self.options.pause_ms:
                self.ends.wait(self.options.pause_ms / 1000)


def keep_busy(port, sleep_ms, ends):
    """Redis answers nobody for so long, again and again."""
    with socket.create_connection(("127.0.0.1", port)) as redis:
        while not ends.is_set():
            redis.sendall(f"DEBUG SLEEP {sleep_ms / 1000}\r\n".encode())
            redis.recv(64)


def move_out(group):
    """What a control group has in memory goes to the swap, as where a machine is short of memory."""
    forced = os.path.join(group, "memory.force_empty")
    if os.path.exists(forced):
        path, text = forced, "0"
    else:
        # Version 2 takes a number, here more than there is, and says that it was less.
        path, text = os.path.join(group, "memory.reclaim"), "1G"
    with contextlib.suppress(BlockingIOError), open(path, "w", encoding="ascii") as file:
        file.write(text)


def start_hogs(count):
    """Programs of another name that compute on two CPUs, as many as a small machine has."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hog")
    return [subprocess.Popen(["taskset", "-c", "0,1", program]) for _ in range(count)]


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def drags(clients, begin_ns=0, end_ns=math.inf):
    """Of the requests that have ended between these two, nanoseconds since 1970, by their own clock: at least, at most."""
    return [ns for client in clients for ns, ended in zip(client.drag_ns, client.ended_ns) if begin_ns <= ended < end_ns]


def means_ms(found):
    """At least, at most, on average."""
    return [round(statistics.mean(column) / 1e6, 3) for column in zip(*found)]


def watches(clients):
    """Of each line of the standard input, when a watch began and ended: the mean drag of the requests that ended meanwhile, none if none did."""
    return [means_ms(drags(clients, *map(int, line.split()))) for line in sys.stdin]


def report(clients, seconds, watched):
    took_ns = [ns for client in clients for ns in client.took_ns]
    found = drags(clients)
    errors = [error for client in clients for error in client.errors]
    if not found:
        sys.exit(f"error: no request succeeded: {errors[:1]}")
    return {
        "requests": len(found), "seconds": round(seconds, 3), "errors": len(errors), "first_error": errors[0] if errors else None,
        "mean_ms": round(statistics.mean(took_ns) / 1e6, 3), "p50_ms": round(statistics.median(took_ns) / 1e6, 4), "p95_ms": round(quantile(took_ns, 0.95) / 1e6, 3),
        # Of a request, by its own clock.
        "drag_ms": means_ms(found), "drag_p95_ms": round(quantile((most for _, most in found), 0.95) / 1e6, 3),
        "watched_drag_ms": watched,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--redis", type=int, required=True, help="its port")
    parser.add_argument("--seconds", type=float, default=0, help="0: until the standard input ends, of which each line is when a watch of the requests began and ended, nanoseconds since 1970")
    parser.add_argument("--group", help="the control group of those who serve, for moves_out")
    parser.add_argument("words", nargs="*", help="clients=N requests=N pause_ms=N hogs=N redis_sleeps_ms=N moves_out=1")
    options = parser.parse_args()
    words = {"clients": 1, "requests": 0, "pause_ms": 0, "hogs": 0, "redis_sleeps_ms": 0, "moves_out": 0}
    for word in options.words:
        name, _, value = word.partition("=")
        if name not in words:
            parser.error(f"unknown word: {word}")
        words[name] = int(value)
    if words["moves_out"] and not options.group:
        parser.error("moves_out needs --group")
    vars(options).update(words)
    kind, _, rest = options.address.partition(":")
    ends, clients, others, watched = threading.Event(), [], [], []
    hogs = start_hogs(options.hogs)
    try:
        if options.redis_sleeps_ms:
            others.append(threading.Thread(target=keep_busy, args=(options.redis, options.redis_sleeps_ms, ends), daemon=True))
        if kind != "file":
            place, _, what = rest.partition(":")
            server = Pool(place, what) if kind == "fpm" else Service(place, what)
            clients = [Client(server, options, ends, first) for first in range(options.clients)]
        begin = time.monotonic()
        for thread in others + clients:
            thread.start()
        if options.requests:
            for client in clients:
                client.join()
        elif options.seconds:
            time.sleep(options.seconds)
        else:
            watched = watches(clients)
        ends.set()
        for client in clients:
            client.join()
        seconds = time.monotonic() - begin
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    if kind == "file":
        with open(rest, encoding="utf-8") as file:
            print(file.read().strip())
    else:
        print(json.dumps(report(clients, seconds, watched)))


if __name__ == "__main__":
    main()
