"""What stacks of native code cost eight workers of PHP-FPM: CPU per request with the sampler, without it, and with native stacks, in turns.

All workers are idle at the borders of a slice, so CPU time divides by requests exactly. In each round each variant has as many slices of the
same requests, in an order by chance; a round gives one ratio. Afterwards the kernel itself counts how long its program runs at each look.
"""

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

#: Most of the workers' CPU that native stacks may take at 99 Hz, per cent.
BAR = 2.0
HZ = 99

#: Pages of the lab that are asked for in turn, requests of a slice, slices of a variant in a round, and slices before them that warm it up.
PATHS = ["/lab/cpu.php", "/?p=5", "/lab/deep.php", "/lab/db.php"]
REQUESTS, SLICES, WARM = 16, 6, 4

VARIANTS = ("none", "plain", "native")

STATS = "/proc/sys/kernel/bpf_stats_enabled"


def cpu_ns(pids):
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total


class Load:
    """As many connections as there are workers, which send the same requests in each slice."""

    def __init__(self, url, connections):
        parts = urlsplit(url)
        self.host = parts.netloc
        self.sockets = [socket.create_connection((parts.hostname, parts.port)) for _ in range(connections)]

    def fetch(self, connection, path):
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65_536)
        head, body = data.split(b"\r\n\r\n", 1)
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise SystemExit(f"error: {path} answers {head.splitlines()[0]!r}")
        if b"chunked" in head.lower():
            while not body.endswith(b"0\r\n\r\n"):
                body += connection.recv(65_536)
            return
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        while len(body) < length:
            body += connection.recv(65_536)

    def slice(self):
        def work(connection, first):
            for number in range(first, REQUESTS, len(self.sockets)):
                self.fetch(connection, PATHS[number % len(PATHS)])

        threads = [threading.Thread(target=work, args=(s, n)) for n, s in enumerate(self.sockets)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


class Sampler:
    def __init__(self, program, workers):
        self.process = subprocess.Popen(
            [program, str(HZ), *map(str, workers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def turn(self, variant):
        self.process.stdin.write(f"{variant}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("error: the sampler has ended")
        return json.loads(line)


def interval(values, rounds=2_000):
    """Median and its 95 % interval by resampling."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(rounds))
    return f"{statistics.median(values):+.2f} % [{medians[int(rounds * 0.025)]:+.2f}, {medians[int(rounds * 0.975)]:+.2f}]"


def microseconds_of_a_look(sampler, variant, load):
    """How long the program of the clock runs, by the kernel's own count; that of those that hit no target counts too."""

    def counted():
        programs = json.loads(subprocess.run(["bpftool", "--json", "prog", "show"], check=True, capture_output=True).stdout)
        own = [program for program in programs if program.get("name") == "on_clock" and program.get("run_cnt")]
        return sum(p["run_time_ns"] for p in own), sum(p["run_cnt"] for p in own)

    sampler.turn(variant)
    with open(STATS, "w", encoding="ascii") as file:
        file.write("1")
    try:
        for _ in range(2 * SLICES):
            load.slice()
        took, looks = counted()
    finally:
        with open(STATS, "w", encoding="ascii") as file:
            file.write("0")
        sampler.turn("none")
    return took / max(looks, 1) / 1_000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--workers", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--seconds", type=float, default=200)
    options = parser.parse_args()
    workers = [int(pid) for pid in options.workers.split()]
    load, sampler, draw = Load(options.url, len(workers)), Sampler(options.program, workers), random.Random(2)
    for _ in range(4):
        load.slice()
    begin, rounds, own = time.monotonic(), [], {variant: [] for variant in VARIANTS}
    while time.monotonic() - begin < options.seconds:
        used = {}
        for variant in draw.sample(VARIANTS, len(VARIANTS)):
            sampler.turn(variant)
            # The names of what runs are read once.
            for _ in range(WARM):
                load.slice()
            before, began = cpu_ns(workers), time.monotonic_ns()
            for _ in range(SLICES):
                load.slice()
            used[variant] = (cpu_ns(workers) - before) / SLICES / REQUESTS
            took = time.monotonic_ns() - began
            own_before = cpu_ns([sampler.process.pid])
            load.slice()
            own[variant].append((cpu_ns([sampler.process.pid]) - own_before) / (took / SLICES) * 100)
            answer = sampler.turn("none")
        rounds.append(used)
    extra = {
        (more, than): [(used[more] / used[than] - 1) * 100 for used in rounds]
        for more, than in (("plain", "none"), ("native", "none"), ("native", "plain"))
    }
    looks = {variant: microseconds_of_a_look(sampler, variant, load) for variant in VARIANTS[1:]}
    print(f"{len(rounds)} rounds of {SLICES * REQUESTS} requests, {statistics.median(r['none'] for r in rounds) / 1e6:.1f} ms of CPU each alone")
    for (more, than), values in extra.items():
        print(f"workers' CPU per request, {more} beside {than}: {interval(values)}")
    for variant, value in looks.items():
        print(f"{variant}: {value:.2f} us for a tick of a CPU's clock, {statistics.median(own[variant]):.2f} % of a core for ourselves")
    print(f"{answer['samples']} samples, {answer['lost']} failed")
    whole = statistics.median(extra["native", "none"])
    print(f"result: native stacks take {interval(extra['native', 'none'])} of the workers' CPU at {HZ} Hz (at most {BAR} %)")
    return 0 if whole <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
