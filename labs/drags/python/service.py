"""A WSGI service. Each response ends with the nanoseconds that its drag took: what the path names.

A thread beside those that serve does what `BESIDE` names: it computes and keeps the interpreter's lock, or sleeps and keeps one of ours.
"""

import os
import socket
import threading
import time

BESIDE = os.environ.get("BESIDE")
SLOW_PORT = int(os.environ.get("SLOW_PORT", "0"))

clock = time.perf_counter_ns
prices_lock = threading.Lock()


def recompute_prices():
    """Some 2 ms in which no other thread computes: nothing in one call of `sum` gives the interpreter's lock away."""
    return sum(range(200_000))


def recompute_for_ever():
    while True:
        recompute_prices()


def reload_for_ever():
    """Holds a lock of ours, and no other."""
    while True:
        with prices_lock:
            time.sleep(0.012)
        time.sleep(0.004)


def compute(ns):
    end = time.thread_time_ns() + ns
    while time.thread_time_ns() < end:
        pass


def yields():
    """Gives the interpreter's lock away and takes it again, as each call to a server does."""
    took = 0
    for _ in range(6):
        begin = clock()
        time.sleep(0)
        took += clock() - begin
    compute(500_000)
    return took


def locked():
    begin = clock()
    with prices_lock:
        took = clock() - begin
    compute(500_000)
    return took


def asks(ms):
    begin = clock()
    with socket.create_connection(("127.0.0.1", SLOW_PORT)) as server:
        server.sendall(b"PING %d\r\n" % ms)
        server.recv(64)
    took = clock() - begin
    compute(500_000)
    return took


def app(environ, start_response):
    name = environ["PATH_INFO"].strip("/")
    if name == "asks":
        took = asks(12)
    else:
        took = {"yields": yields, "locked": locked}.get(name, lambda: 0)()
    body = b"done\n%d" % took
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


def start_beside():
    target = {"gil": recompute_for_ever, "lock": reload_for_ever}.get(BESIDE)
    if target:
        threading.Thread(target=target, name=target.__name__, daemon=True).start()


start_beside()
