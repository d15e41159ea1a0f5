#!/usr/bin/python3
"""Sends a light, repeatable load to the lab stack and prints one JSON line with what came back.

Only the standard library of Python 3.8 or later. Each connection is a thread that speaks just enough HTTP/1.1 over a plain
socket: http.client would cost four times the CPU, which on a small machine is taken from the servers under measurement.
"""

import argparse
import itertools
import json
import random
import re
import socket
import sys
import threading
import time
from urllib.parse import urlsplit

READ_BYTES = 65_536
TIMEOUT_S = 30
#: Largest head of a response that we wait for; more than that is not one of our servers.
MAX_HEAD_BYTES = 65_536

TARGETS = ["wordpress", "gunicorn", "lab", "both"]
LAB_PATHS = ["/lab/cpu.php", "/lab/db.php", "/lab/redis.php", "/lab/redis.php?via=unix", "/lab/sleep.php", "/lab/deep.php"]
MATERIALS = ["steel", "brass", "nylon", "copper", "carbon"]
KINDS = ["pump", "valve", "bearing", "sensor"]


def wordpress_path(draw, posts):
    """One page view of a small site: mostly single posts, many home pages, some lists, search, REST, plain pages."""
    post = draw.choice(posts)
    kind = draw.random()
    if kind < 0.40:
        return f"/?p={post}"
    if kind < 0.60:
        return "/"
    if kind < 0.70:
        return f"/?paged={draw.randint(1, last_page(posts, 20, 5))}"
    if kind < 0.75:
        return "/?s=" + draw.choice(["pump", "valve", "gear", "motor"])
    if kind < 0.85:
        return f"/?rest_route=/wp/v2/posts&per_page=5&page={draw.randint(1, last_page(posts, 5, 10))}"
    return draw.choice(LAB_PATHS)


def last_page(posts, per_page, limit):
    """The last page that a list of all posts has, but at most ``limit``."""
    return max(1, min(limit, len(posts) // per_page))


def gunicorn_path(draw):
    """One visit to the catalogue; a few per cent wait or compute for long."""
    kind = draw.random()
    if kind < 0.30:
        return f"/category/{draw.choice(MATERIALS)}-{draw.choice(KINDS)}?page={draw.randrange(1, 3)}"
    if kind < 0.65:
        return f"/product/{draw.randrange(1, 1201)}"
    if kind < 0.75:
        return "/"
    if kind < 0.85:
        return f"/basket?visitor={draw.randrange(1, 1001)}&add={draw.randrange(1, 1201)}"
    if kind < 0.92:
        return f"/api/products?offset={draw.randrange(0, 1000)}"
    if kind < 0.97:
        return f"/quote?items=60&seed={draw.randrange(0, 1000)}"
    return "/wait?ms=20"


def make_plan(options):
    """An endless sequence of ``(target, address, request bytes)``, the same for the same options."""
    draw = random.Random(options.seed)
    requests = {}

    def request(target, path):
        url = options.gunicorn_url if target == "gunicorn" else options.wordpress_url
        key = (target, path)
        if key not in requests:
            parts = urlsplit(url)
            head = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUser-Agent: slipstream-lab\r\nAccept: */*\r\n\r\n"
            requests[key] = (target, (parts.hostname, parts.port or 80), head.encode())
        return requests[key]

    def wordpress():
        return request("wordpress", wordpress_path(draw, options.posts))

    def gunicorn():
        return request("gunicorn", gunicorn_path(draw))

    if options.url:
        return itertools.cycle([request(options.target, path) for path in options.url])
    if options.target == "lab":
        return itertools.cycle([request("wordpress", path) for path in LAB_PATHS])
    makers = {"wordpress": [wordpress], "gunicorn": [gunicorn], "both": [wordpress, gunicorn]}[options.target]
    return (make() for make in itertools.cycle(makers))


class Connection:
    """One kept-alive connection per server. Not for use by several threads."""

    def __init__(self):
        self.sockets = {}
        #: From the first byte of the last request to the last of its response, seconds: without connecting and closing.
        self.answered_s = 0.0

    def send(self, address, request):
        """Returns ``(status, body bytes)``. A connection that the server closed while it was idle is opened again once.

        Raises OSError if the server cannot be reached or the response is cut off, ValueError if it is not HTTP.
        """
        kept = self.sockets.pop(address, None)
        if kept is not None:
            try:
                return self.exchange(kept, address, request)
            except ConnectionError:
                pass
        fresh = socket.create_connection(address, TIMEOUT_S)
        fresh.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.exchange(fresh, address, request)

    def exchange(self, connection, address, request):
        try:
            begin = time.perf_counter()
            connection.sendall(request)
            status, size, keep = read_response(connection)
            self.answered_s = time.perf_counter() - begin
        except BaseException:
            connection.close()
            raise
        if keep:
            self.sockets[address] = connection
        else:
            connection.close()
        return status, size


LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)


def read_response(connection):
    """Reads one response to its end: ``(status, body bytes, may the connection be kept)``."""
    data = b""
    while True:
        end = data.find(b"\r\n\r\n")
        if end >= 0:
            break
        more = connection.recv(READ_BYTES)
        if not more:
            raise ConnectionResetError("closed before the response")
        data += more
        if len(data) > MAX_HEAD_BYTES + READ_BYTES:
            raise ValueError("no end of the response's head")
    head, rest = data[:end], data[end + 4 :]
    if not head.startswith(b"HTTP/1."):
        raise ValueError("not an HTTP response")
    status = int(head[9:12])
    length = LENGTH.search(head)
    if length:
        size = int(length.group(1))
        missing = size - len(rest)
        while missing > 0:
            more = connection.recv(min(missing, READ_BYTES))
            if not more:
                raise OSError("the body was cut off")
            missing -= len(more)
        return status, size, not CLOSE.search(head)
    if CHUNKED.search(head):
        return status, read_chunks(connection, rest), not CLOSE.search(head)
    size = len(rest)
    while True:
        more = connection.recv(READ_BYTES)
        if not more:
            return status, size, False
        size += len(more)


def read_chunks(connection, data):
    """Reads a chunked body after ``data``, which is its beginning; returns the size of the contents."""
    total = position = 0
    while True:
        line_end = data.find(b"\r\n", position)
        while line_end < 0:
            data, position = receive(connection, data, position)
            line_end = data.find(b"\r\n", position)
        size = int(data[position:line_end].split(b";")[0], 16)
        position = line_end + 2
        while len(data) - position < size + 2:
            data, position = receive(connection, data, position)
        position += size + 2
        total += size
        if size == 0:
            return total


def receive(connection, data, position):
    more = connection.recv(READ_BYTES)
    if not more:
        raise OSError("the body was cut off")
    return data[position:] + more, 0


class Run:
    """The threads of one load, their schedule and their results."""

    def __init__(self, options):
        self.options = options
        self.plan = make_plan(options)
        self.lock = threading.Lock()
        self.number = 0
        self.results = []
        self.start = time.perf_counter()
        self.count_from = self.start + options.warm_up
        self.stop_at = self.count_from + options.seconds

    def next_request(self):
        """The next request with the moment it is due, or None when the time is over."""
        with self.lock:
            due = self.start + self.number / self.options.rate if self.options.rate else time.perf_counter()
            if due >= self.stop_at:
                return None
            self.number += 1
            return due, next(self.plan)

    def work(self):
        connection = Connection()
        mine = []
        while True:
            item = self.next_request()
            if item is None:
                break
            due, (target, address, request) = item
            early = due - time.perf_counter()
            if early > 0:
                time.sleep(early)
            try:
                status, _ = connection.send(address, request)
            except (OSError, ValueError) as error:
                status = type(error).__name__
            # With a rate, the time counts from when the request was due: a server that is too slow for the rate keeps
            # connections busy, and the requests that wait for one have users waiting behind them.
            if due >= self.count_from:
                mine.append((target, status, time.perf_counter() - due, connection.answered_s))
        with self.lock:
            self.results.extend(mine)

    def execute(self):
        threads = [threading.Thread(target=self.work, daemon=True) for _ in range(self.options.concurrency)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self.stop_at = 0
            for thread in threads:
                thread.join(TIMEOUT_S)
        return time.perf_counter() - self.count_from


def summarise(results):
    """Counts and latencies; a latency is counted only for an answer with status 200."""
    good = [(seconds, answered) for _, status, seconds, answered in results if status == 200]
    times = sorted(seconds for seconds, _ in good)
    summary = {"requests": len(results), "errors": len(results) - len(times)}
    if times:
        summary["mean_ms"] = round(sum(times) / len(times) * 1e3, 3)
        summary["answer_mean_ms"] = round(sum(answered for _, answered in good) / len(good) * 1e3, 3)
        for name, share in (("p50_ms", 0.50), ("p95_ms", 0.95), ("p99_ms", 0.99), ("max_ms", 1.0)):
            summary[name] = round(times[min(len(times) - 1, int(share * len(times)))] * 1e3, 3)
    statuses = [str(status) for _, status, _, _ in results if status != 200]
    if statuses:
        summary["error_kinds"] = {kind: statuses.count(kind) for kind in sorted(set(statuses))}
    return summary


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="stack load", description="Load for the lab stack; result as one JSON line.")
    add = parser.add_argument
    add("--seconds", type=float, default=10, help="duration (default 10)")
    add("--warm-up", type=float, default=0, metavar="SECONDS", help="before that, send without counting (default 0)")
    add("--rate", type=float, default=20, help="requests per second in all; 0: as fast as concurrency permits (default 20)")
    add("--concurrency", type=int, default=4, help="connections, so requests under way at a time (default 4)")
    add("--target", choices=TARGETS, default="both", help="lab: the plain PHP pages (default both)")
    add("--url", action="append", metavar="PATH", help="this path instead of the mix, from WordPress's server unless the "
        "target is gunicorn; repeatable")
    add("--seed", type=int, default=1, help="another sequence of pages (default 1)")
    add("--wordpress-url", default="", help=argparse.SUPPRESS)
    add("--gunicorn-url", default="", help=argparse.SUPPRESS)
    add("--posts", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.url and options.target != "gunicorn":
        options.target = "wordpress"
    options.posts = [int(post) for post in options.posts.split(",") if post]
    if options.concurrency < 1 or options.rate < 0 or options.warm_up < 0 or options.seconds <= 0:
        parser.error("concurrency and seconds must be positive, and the rate not negative")
    return options


def main(arguments):
    options = parse_arguments(arguments)
    if options.target in ("wordpress", "both") and not options.url and not options.posts:
        print("error: WordPress has no posts to visit\nhint: stack seed", file=sys.stderr)
        return 1
    run = Run(options)
    elapsed_s = run.execute()
    summary = {
        "target": options.target,
        "rate": options.rate,
        "concurrency": options.concurrency,
        "seconds": round(elapsed_s, 3),
        "per_second": round(len(run.results) / elapsed_s, 2),
        "load_cpu_s": round(time.process_time(), 3),
    }
    summary.update(summarise(run.results))
    if options.target == "both":
        for target in ("wordpress", "gunicorn"):
            summary[target] = summarise([result for result in run.results if result[0] == target])
    print(json.dumps(summary))
    return 0 if summary["requests"] and summary["requests"] > summary["errors"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
