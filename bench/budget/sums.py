"""Whether budgets add up: beside clocks inside of applications, and the load generator's."""

import contextlib
import json
import mmap
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from fastcgi import FastCgi
from lab import SYMFONY, Books, Lab, Stack, children

#: Most by which the workers' time may differ from a clock inside, and the clients' from the load generator, per cent.
WORKER_BAR, CLIENT_BAR = 2.0, 5.0

#: Pages of Symfony's, as `bench/snapshot` has them.
PAGES = ["/news", "/news/post/news-1", "/glossary/2", "/about", "/news/feed.xml"]

#: Notes how long a request of PHP takes by its own clock, from the first line to the last.
PREPEND = """<?php
$GLOBALS["begun"] = hrtime(true);
register_shutdown_function(function () {
    register_shutdown_function(function () {
        file_put_contents("%s", (hrtime(true) - $GLOBALS["begun"]) . "\\n", FILE_APPEND | LOCK_EX);
    });
});
"""

#: Notes how long gunicorn's worker has to do with a request by its own clock: from when it asks for a connection to when it asks for the
#: next one, less what it was blocked for in `select`: what is left of that time when the thread's CPU time in it is taken off, and the
#: time for which it was ready and had no CPU, as the scheduler counts it.
CLOCK = """import os, time
from gunicorn.workers.sync import SyncWorker

accept, wait = SyncWorker.accept, SyncWorker.wait
clock, cpu_clock = time.monotonic_ns, time.thread_time_ns
FILE = os.open("%s", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

class Times:
    begun, woken, served, noted = 0, 0, False, []

def ready_ns():
    with open("/proc/thread-self/schedstat") as line:
        return int(line.read().split()[1])

def write():
    os.write(FILE, b"".join(Times.noted))
    Times.noted.clear()

def timed_wait(worker, timeout):
    write()
    ready, used = ready_ns(), cpu_clock()
    found = wait(worker, timeout)
    now, used = clock(), cpu_clock() - used
    Times.woken = now - used - (ready_ns() - ready)
    return found

def timed_accept(worker, listener):
    now = clock()
    if Times.served:
        Times.noted.append(b"%%d\\n" %% (now - Times.begun))
        if len(Times.noted) == 256:
            write()
    Times.begun, Times.woken, Times.served = Times.woken or now, 0, False
    accept(worker, listener)
    Times.served = True

SyncWorker.accept, SyncWorker.wait = timed_accept, timed_wait
"""


def share(found, expected):
    """By how much one is more than the other, per cent."""
    return 100 * (found / expected - 1)


class Service:
    """Something that serves requests, and clocks inside it."""

    def __init__(self, name, pids, load):
        self.name, self.pids, self.load = name, pids, load

    def begin(self):
        """Only what comes from now on counts."""

    def compare(self, budget):
        """Pairs of what the clock is of, and by how much the budget has more."""
        raise NotImplementedError


class Noted(Service):
    """Each clock has a file, in which a request is a line: how long the worker had to do with it, by a span that is some parts of its
    budget."""

    def __init__(self, name, pids, load, *clocks):
        super().__init__(name, pids, load)
        self.clocks = clocks

    def begin(self):
        for _, file, _ in self.clocks:
            with open(file, "w"):
                pass

    def compare(self, budget):
        compared = []
        for what, file, parts in self.clocks:
            with open(file) as lines:
                inside = sum(int(line) for line in lines)
            compared.append((what, share(sum(sum(request[part]) for request in budget["requests"] for part in parts), inside)))
        return compared


class Loop(Service):
    """An event loop, whose requests share a thread: no part of its time belongs to one of them. So its own time is compared, all for which
    it was not waiting, and the spans of requests."""

    #: By their place in `model::Part`: client, wait, wake and what the loop is blocked by in `select()`.
    WAITS = ["wait", "client", "wake", "sleep", "other"]
    PARTS = ["code", "boot", "memory", "connect", "transfer", "wait", "client", "wake", "preempted", "lock", "gil", "disk", "sleep", "other"]

    def __init__(self, name, pids, load, file):
        super().__init__(name, pids, load)
        with open(file, "r+b") as opened:
            self.page = mmap.mmap(opened.fileno(), mmap.PAGESIZE, prot=mmap.PROT_READ)
        self.before = None

    def read(self):
        return struct.unpack_from("=QQQ", self.page)

    def begin(self):
        self.before = self.read()

    def compare(self, budget):
        busy, spans, requests = (after - before for after, before in zip(self.read(), self.before))
        times = [worker[kind] for worker in budget["workers"] for kind in ("serving", "after", "between")]
        found = sum(ns for time in times for part, ns in zip(self.PARTS, time) if part not in self.WAITS)
        mean = statistics.mean(request["response_ns"] - request["begin_ns"] for request in budget["requests"])
        return [("loop", share(found, busy)), ("spans", share(mean, spans / requests))]


class Http:
    """The stack's load generator."""

    def __init__(self, stack, *arguments):
        self.stack, self.arguments = stack, arguments

    def run(self, concurrency, seconds):
        """Requests, and from the first byte of each to the last of its response on average, milliseconds."""
        load = self.stack.load("--rate", 0, "--concurrency", concurrency, "--seconds", seconds, *self.arguments)
        found = json.loads(load.communicate()[0].strip().splitlines()[-1])
        return found["requests"], found["answer_mean_ms"]


@contextlib.contextmanager
def asgi(stack, clock):
    """`service.py`, with its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = [sys.executable, "bench/budget/service.py", str(port), stack.values["STACK_REDIS_PORT"], clock]
    with subprocess.Popen(["/usr/bin/python3", *program[1:]]) as process:
        try:
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                if process.poll() is not None:
                    sys.exit("error: the ASGI service ended")
                time.sleep(0.05)
            yield process.pid, port
        finally:
            process.terminate()


@contextlib.contextmanager
def services(options, clock):
    """Functions that make them, each with its clocks."""
    with contextlib.ExitStack() as ends:
        with open(f"{clock}/gunicorn.py", "w") as file:
            file.write(CLOCK % f"{clock}/gunicorn")
        with open(f"{clock}/prepend.php", "w") as file:
            file.write(PREPEND % f"{clock}/script")
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "bench/budget/clock.c", "-o", f"{clock}/clock.so", "-ldl"], check=True)
        os.environ["GUNICORN_ENV"] = f"GUNICORN_CMD_ARGS=--config={clock}/gunicorn.py"
        os.environ["FPM_ENV"] = f"LD_PRELOAD={clock}/clock.so SLIP_CLOCK={clock}/worker"
        stack = Stack("--children", "8", "--fpm-arg", f"-dauto_prepend_file={clock}/prepend.php")
        ends.callback(stack.down)
        worker = ("workers", f"{clock}/worker", ["serving", "after"])

        def wordpress():
            stack.run("seed")
            pids = children(int(stack.values["STACK_FPM_PID"]))
            return Noted("WordPress", pids, Http(stack, "--target", "wordpress"), worker, ("scripts", f"{clock}/script", ["serving"]))

        def symfony():
            lab = Lab(SYMFONY, "SLIP_SYMFONY_DIR", "plain=plain.php")
            ends.callback(lab.down)
            load = FastCgi(f"{lab.folder}/php/plain.sock", f"{lab.folder}/app/public/plain.php", PAGES)
            return Noted("Symfony", [int(lab.values["SYMFONY_PLAIN_WORKER_PID"])], load, worker)

        def gunicorn():
            pids = children(int(stack.values["STACK_GUNICORN_PID"]))
            return Noted("gunicorn", pids, Http(stack, "--target", "gunicorn"), ("workers", f"{clock}/gunicorn", ["serving", "after"]))

        def asyncio():
            stack.run("install", "uvicorn")
            pid, port = ends.enter_context(asgi(stack, f"{clock}/asgi"))
            load = Http(stack, "--target", "gunicorn", "--gunicorn-url", f"http://127.0.0.1:{port}", "--url", "/")
            return Loop("asyncio", [pid], load, f"{clock}/asgi")

        makers = {"wordpress": wordpress, "symfony": symfony, "gunicorn": gunicorn, "asyncio": asyncio}
        yield [makers[name] for name in options.service or makers]


def sums(options):
    clock = tempfile.mkdtemp(prefix="slip-clock.", dir="/var/tmp")
    os.chmod(clock, 0o777)
    failed, parts = [], []
    try:
        with services(options, clock) as makers:
            for make in makers:
                service = make()
                for concurrency in (1, 8):
                    name = f"{service.name} x{concurrency}"
                    text, holds = add_up(service, concurrency, options.seconds)
                    parts.append(f"{name}: {text}")
                    print(parts[-1], flush=True)
                    if not holds:
                        failed.append(name)
    finally:
        shutil.rmtree(clock, ignore_errors=True)
    print(f"result: {'; '.join(parts)} (bars: all, {WORKER_BAR:.0f} % and {CLIENT_BAR:.0f} %){'; not: ' + ', '.join(failed) if failed else ''}")
    return 1 if failed else 0


def add_up(service, concurrency, seconds):
    service.load.run(concurrency, 2)
    books = Books(service.pids)
    books.tell("on")
    service.begin()
    requests, answer_ms = service.load.run(concurrency, seconds)
    # The last one ends after its response has come.
    time.sleep(0.2)
    budget = json.loads(books.tell("take"))
    compared = service.compare(budget)
    books.end()
    found = budget["requests"]
    client = statistics.mean(request["response_ns"] - request["queued_ns"] for request in found) / 1e6
    compared_client = share(client, answer_ms)
    holds = len(found) == requests and all(abs(by) <= WORKER_BAR for _, by in compared) and abs(compared_client) <= CLIENT_BAR
    inside = ", ".join(f"{what} {by:+.1f} %" for what, by in compared)
    return f"{len(found)} of {requests} requests, {inside}, clients {compared_client:+.1f} %", holds
