"""Measures for `bench/budget/run`, which see."""

import argparse
import contextlib
import glob
import json
import os
import re
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
# pylint: disable=wrong-import-position
from interval import middle, text

BOOKS, STACK = "target/release/examples/books", "labs/stack/stack"

#: Most BPF time for a call, us; most CPU more for a call and most calls a second less, per cent.
BPF_BAR, CPU_BAR, CALLS_BAR = 2.0, 8.0, 5.0
SLICE_S = 0.25
#: Calls of a page.
GETS = 40
#: Most by which the workers' time may differ from a clock inside, and the clients' from the load generator, per cent.
WORKER_BAR, CLIENT_BAR = 2.0, 5.0


class Stack:
    """The lab stack in a folder of its own."""

    def __init__(self, *options):
        self.folder = tempfile.mkdtemp(prefix="slip-budget.", dir="/var/tmp")
        self.environment = {**os.environ, "SLIP_STACK_DIR": self.folder}
        self.run("up", *options)
        shown = self.run("env")
        self.values = dict(word.split("=", 1) for line in shown.splitlines() for word in shlex.split(line.removeprefix("export ")) if "=" in word)

    def run(self, *arguments):
        ran = subprocess.run([STACK, *arguments], env=self.environment, stdout=subprocess.PIPE, text=True, check=False)
        if ran.returncode:
            sys.exit(f"error: {STACK} {' '.join(arguments)} failed")
        return ran.stdout

    def load(self, *arguments):
        return subprocess.Popen([STACK, "load", *map(str, arguments)], env=self.environment, stdout=subprocess.PIPE, text=True)

    def down(self):
        subprocess.run([STACK, "down", "--delete"], env=self.environment, stdout=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


class Books:
    """A process that keeps books of others, when told to."""

    def __init__(self, pids):
        self.process = subprocess.Popen([BOOKS, *map(str, pids)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def tell(self, word):
        print(word, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().strip()
        if not answer:
            sys.exit("error: the books cannot be kept")
        return answer

    def bpf_ns(self):
        """What all programs have taken so far."""
        total = 0
        for path in glob.glob(f"/proc/{self.pid}/fdinfo/*"):
            with contextlib.suppress(OSError), open(path) as lines:
                found = re.search(r"^run_time_ns:\s*(\d+)", lines.read(), re.MULTILINE)
                total += int(found[1]) if found else 0
        return total

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def cpu_ns(pids):
    total = 0
    for pid in pids:
        for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
            with contextlib.suppress(OSError), open(path) as line:
                total += int(line.read().split()[0])
    return total


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as line:
        return [int(child) for child in line.read().split()]


class Redis:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")

    def calls(self):
        self.socket.sendall(b"*2\r\n$4\r\nINFO\r\n$5\r\nstats\r\n")
        length = int(self.file.readline()[1:])
        text = self.file.read(length + 2).decode()
        return int(re.search(r"total_commands_processed:(\d+)", text)[1])


def cost(options):
    stack = Stack("--children", "2")
    try:
        workers = children(int(stack.values["STACK_FPM_PID"]))
        servers = [int(stack.values["STACK_REDIS_PID"]), int(stack.values["STACK_NGINX_PID"])]
        servers += children(servers[1])
        redis, books = Redis(int(stack.values["STACK_REDIS_PORT"])), Books(workers)
        load = stack.load("--rate", 0, "--concurrency", 2, "--target", "lab", "--url", f"/lab/redis.php?gets={GETS}", "--seconds", 100_000)
        try:
            time.sleep(1)
            return compare(options, workers + servers, redis, books)
        finally:
            load.send_signal(signal.SIGKILL)
            load.wait()
            books.end()
    finally:
        stack.down()


def measure(pids, redis, seconds, more=()):
    calls, used, own, begin = redis.calls(), cpu_ns(pids), cpu_ns(more), time.perf_counter()
    time.sleep(seconds)
    took = time.perf_counter() - begin
    calls = redis.calls() - calls
    return calls / took, (cpu_ns(pids) - used) / calls, (cpu_ns(more) - own) / calls


@contextlib.contextmanager
def counting():
    """The kernel counts what programs take; that takes time itself, which it counts as theirs."""
    switch = "/proc/sys/kernel/bpf_stats_enabled"
    with open(switch, "w") as file:
        file.write("1")
    try:
        yield
    finally:
        with open(switch, "w") as file:
            file.write("0")


def compare(options, pids, redis, books):
    rounds = {"empty": [], "on": []}
    for number in range(options.slices):
        for variant in ("empty", "on") if number % 2 else ("on", "empty"):
            # Each beside nothing, before it or after it.
            first = (number // 2) % 2
            nothing = measure(pids, redis, SLICE_S) if first else None
            books.tell(variant)
            found = measure(pids, redis, SLICE_S, [books.pid])
            books.tell("off")
            nothing = nothing or measure(pids, redis, SLICE_S)
            rounds[variant].append((100 * (1 - found[0] / nothing[0]), 100 * ((found[1] + found[2]) / nothing[1] - 1), nothing[0]))
    counted = {variant: [] for variant in rounds}
    with counting():
        for number in range(40):
            variant = ("empty", "on")[number % 2]
            books.tell(variant)
            calls, taken = redis.calls(), books.bpf_ns()
            time.sleep(SLICE_S)
            counted[variant].append((books.bpf_ns() - taken) / (redis.calls() - calls) / 1e3)
            books.tell("off")
    # What it counts for programs that do nothing is the counting itself.
    empty = statistics.median(counted["empty"])
    bpf = middle([one - empty for one in counted["on"]])
    rate = statistics.median(nothing for found in rounds.values() for _, _, nothing in found)
    whole = statistics.median(counted["on"])
    parts, holds = [f"{rate:,.0f} calls a second, BPF {text(bpf)} us a call (bar {BPF_BAR:.0f}; counted {whole:.2f} and {empty:.2f} when empty)"], bpf[2] <= BPF_BAR
    print(parts[0])
    for variant, found in rounds.items():
        fewer, more = middle([one for one, _, _ in found]), middle([one for _, one, _ in found])
        parts.append(f"{variant}: CPU per call {text(more)} % more, calls {text(fewer)} % fewer")
        if variant == "on":
            holds = holds and more[2] <= CPU_BAR and fewer[0] <= CALLS_BAR
    print(f"result: {'; '.join(parts)} (bars {CPU_BAR:.0f} and {CALLS_BAR:.0f}); {options.slices} paired slices of each")
    return 0 if holds else 1


#: Notes how long a request of PHP takes by its own clock, from the first line to the last.
PREPEND = """<?php
$GLOBALS["begun"] = hrtime(true);
register_shutdown_function(function () {
    register_shutdown_function(function () {
        file_put_contents("%s", (hrtime(true) - $GLOBALS["begun"]) . "\\n", FILE_APPEND | LOCK_EX);
    });
});
"""


#: Notes how long a request of gunicorn takes by its own clock, from asking for its connection to the last byte of the response.
CLOCK = """import time
from gunicorn.workers.sync import SyncWorker

accept, handle = SyncWorker.accept, SyncWorker.handle

class Client:
    def __init__(self, socket):
        self.socket, self.sent = socket, 0
    def __getattr__(self, name):
        return getattr(self.socket, name)
    def sendall(self, data):
        self.socket.sendall(data)
        self.sent = time.monotonic_ns()

def timed_accept(worker, listener):
    worker.begun = time.monotonic_ns()
    accept(worker, listener)

def timed_handle(worker, listener, client, address):
    timed = Client(client)
    handle(worker, listener, timed, address)
    with open("%s", "a") as file:
        file.write(f"{timed.sent - worker.begun}\\n")

SyncWorker.accept, SyncWorker.handle = timed_accept, timed_handle
"""


def sums(options):
    clock = tempfile.mkdtemp(prefix="slip-clock.", dir="/var/tmp")
    os.chmod(clock, 0o777)
    with open(f"{clock}/prepend.php", "w") as file:
        file.write(PREPEND % f"{clock}/php")
    with open(f"{clock}/gunicorn.py", "w") as file:
        file.write(CLOCK % f"{clock}/gunicorn")
    os.environ["GUNICORN_ENV"] = f"GUNICORN_CMD_ARGS=--config={clock}/gunicorn.py"
    stack = Stack("--children", "8", "--fpm-arg", f"-dauto_prepend_file={clock}/prepend.php")
    failed, parts = [], []
    try:
        stack.run("seed")
        for service, target, master in (("WordPress", "wordpress", "STACK_FPM_PID"), ("gunicorn", "gunicorn", "STACK_GUNICORN_PID")):
            pids = children(int(stack.values[master]))
            for concurrency in (1, 8):
                name = f"{service} x{concurrency}"
                found = add_up(stack, target, pids, concurrency, options.seconds, f"{clock}/{'php' if target == 'wordpress' else 'gunicorn'}")
                parts.append(f"{name}: {found['text']}")
                print(parts[-1], flush=True)
                if not found["holds"]:
                    failed.append(name)
    finally:
        stack.down()
        shutil.rmtree(clock, ignore_errors=True)
    print(f"result: {'; '.join(parts)} (bars: all, {WORKER_BAR:.0f} % and {CLIENT_BAR:.0f} %){'; not: ' + ', '.join(failed) if failed else ''}")
    return 1 if failed else 0


def add_up(stack, target, pids, concurrency, seconds, clock):
    load = stack.load("--rate", 0, "--concurrency", concurrency, "--target", target, "--seconds", 2)
    load.communicate()
    books = Books(pids)
    books.tell("on")
    with open(clock, "w"):
        pass
    load = stack.load("--rate", 0, "--concurrency", concurrency, "--target", target, "--seconds", seconds)
    outside = json.loads(load.communicate()[0].strip().splitlines()[-1])
    # The last one ends after its response has come.
    time.sleep(0.2)
    budget = json.loads(books.tell("take"))
    books.end()
    requests = budget["requests"]
    with open(clock) as lines:
        inside = [int(line) for line in lines]
    worker = sum(sum(request["serving"]) for request in requests)
    by_worker = 100 * (worker / sum(inside) - 1)
    client = statistics.mean(request["response_ns"] - request["queued_ns"] for request in requests) / 1e6
    by_client = 100 * (client / outside["answer_mean_ms"] - 1)
    holds = len(requests) == outside["requests"] and abs(by_worker) <= WORKER_BAR and abs(by_client) <= CLIENT_BAR
    text = f"{len(requests)} of {outside['requests']} requests, workers {by_worker:+.1f} %, clients {by_client:+.1f} %"
    return {"holds": holds, "text": text}


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    of_cost = commands.add_parser("cost")
    of_cost.add_argument("--slices", type=int, default=300)
    of_sums = commands.add_parser("sums")
    of_sums.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    return {"cost": cost, "sums": sums}[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
