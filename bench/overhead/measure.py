"""Paired slices of the same requests, with and without the recorder; CPU per request from schedstat.

A slice is a fixed list of requests by as many connections as there are workers. The recorder runs all the time and is
stopped (SIGSTOP) for the slices without it, and the kernel told to note no switches of the workers for it, so both kinds
of slices see the same machine. Each pair has one slice of
either kind, in random order. All workers are idle at the borders of a slice, so CPU time divides by requests exactly.
Slices are short, two requests a worker, because the speed of a machine that others share changes within seconds: in the
same hour 400 pairs of 16 requests gave an interval of 1.3 points, and 300 pairs of 192 one of 2.4.

The recorder's own CPU is measured afterwards in windows of 10 s, while it runs without a stop: after one it has to catch up. Then that of a
program that makes the recorder's system calls and nothing else (floor.c), under the same load.
"""

import argparse
import ctypes
import fcntl
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from load import Load  # noqa: E402

#: Bars: our CPU in per cent of one core, the workers' extra CPU per request in per cent.
OWN_CPU_BAR, WORKER_CPU_BAR = 1.0, 1.0

#: Pages of the lab that are asked for in turn.
PATHS = ["/lab/cpu.php", "/?p=5", "/lab/deep.php", "/lab/db.php"]

#: Requests of a slice while our own CPU is measured: the workers are to be busy all the time.
STEADY_REQUESTS = 96

#: Into so many parts the time is cut in which our own CPU is measured.
OWN_WINDOWS = 30

#: `PERF_EVENT_IOC_ENABLE` and `PERF_EVENT_IOC_DISABLE`, and the number of the system call `pidfd_getfd`.
ENABLE, DISABLE, PIDFD_GETFD = 0x2400, 0x2401, 438


def perf_events(pid):
    """The perf events of process `pid`, as descriptors of our own."""
    pidfd, libc, events = os.pidfd_open(pid), ctypes.CDLL(None, use_errno=True), []
    for number in os.listdir(f"/proc/{pid}/fd"):
        if "perf_event" in os.readlink(f"/proc/{pid}/fd/{number}"):
            event = libc.syscall(PIDFD_GETFD, pidfd, int(number), 0)
            if event < 0:
                raise OSError(ctypes.get_errno(), "pidfd_getfd")
            events.append(event)
    os.close(pidfd)
    return events


def cpu_ns(pids):
    """CPU time that the main threads of `pids` have used, in nanoseconds."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total


def all_threads_cpu_ns(pid):
    """CPU time that all threads of `pid` have used, in nanoseconds."""
    total = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total


def has_huge_pages(pid):
    """Whether the heap of process `pid` lies on huge pages, or cannot."""
    with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as file:
        if "[never]" in file.read():
            return True
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return any(line.startswith("AnonHugePages:") and line.split()[1] != "0" for line in file)


def read_word(pid, address):
    """Eight bytes of a process's memory."""
    with open(f"/proc/{pid}/mem", "rb") as file:
        file.seek(address)
        return int.from_bytes(file.read(8), "little")


def floor_argument(pid):
    """What the recorder copies of a PHP 8.2 worker, for floor.c: globals, the stack, the heap."""
    program = os.readlink(f"/proc/{pid}/exe")
    table = subprocess.run(["readelf", "--wide", "--dyn-syms", program], check=True, capture_output=True, text=True).stdout
    objects = (line.split() for line in table.splitlines() if " OBJECT " in line)
    symbols = {fields[7]: int(fields[1], 16) for fields in objects}
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        maps = [line.split() for line in file]
    load_address = next(int(line[0].split("-")[0], 16) for line in maps if line[-1] == program)
    executor, sapi = (load_address + symbols[name] for name in ("executor_globals", "sapi_globals"))
    # Offsets in executor_globals and of request memory's heap: crates/zend/src/offsets/v8_2.rs.
    stack = read_word(pid, executor + 472)
    heap = (stack & ~(2 * 1024 * 1024 - 1)) + 0x50
    ranges = [(executor + 488, 8), (stack + 32, 9_728), (sapi, executor + 496 - sapi), (heap, 16)]
    return f"{pid}:" + ",".join(f"{address:#x}+{length}" for address, length in ranges)


def floor_cpu(folder, workers, load, seconds):
    """CPU, in per cent of one core, of the recorder's system calls alone, under the same load."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "floor.c")
    subprocess.run(["cc", "-O2", "-o", f"{folder}/floor", source], check=True)
    command = [f"{folder}/floor", "99", str(seconds), *map(floor_argument, workers)]
    floor = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while floor.poll() is None:
        load.slice()
    looks, copies, failed, cpu = map(int, floor.stdout.read().split())
    if failed:
        raise SystemExit(f"error: {failed} of {copies} copies of the floor failed")
    print(f"system calls alone: {looks / seconds:.0f} looks and {copies / seconds:.0f} copies a second", file=sys.stderr)
    return cpu / seconds / 1e7


def interval(values, rounds=2_000):
    """Median and its 95 % interval by resampling."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(rounds))
    return statistics.median(values), medians[int(rounds * 0.025)], medians[int(rounds * 0.975)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--slip", required=True)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--workers", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--pairs", type=int, default=1_500)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--own-seconds", type=int, default=300)
    options = parser.parse_args()
    workers = [int(pid) for pid in options.workers.split()]
    load = Load(options.url, len(workers), options.requests, PATHS)
    for _ in range(3):
        load.slice()

    with tempfile.TemporaryDirectory() as folder:
        command = [options.slip, "record", "--fpm", options.pool, "--sampler", "outside", "--rate", "99", "--quiet", "--output", f"{folder}/x.slip"]
        recorder = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(2)  # attached, and every name of the usual stacks read once
        load.slice()
        ratios = []
        if not has_huge_pages(recorder.pid):
            raise SystemExit("error: the recorder's heap does not lie on huge pages")
        events = perf_events(recorder.pid)
        draw = random.Random(2)
        for pair in range(options.pairs):
            per_request = {}
            for on in draw.sample([True, False], 2):
                for event in events:
                    fcntl.ioctl(event, ENABLE if on else DISABLE, 0)
                recorder.send_signal(signal.SIGCONT if on else signal.SIGSTOP)
                workers_before = cpu_ns(workers)
                load.slice()
                per_request[on] = (cpu_ns(workers) - workers_before) / options.requests
            ratios.append((per_request[True] / per_request[False] - 1) * 100)
            if pair % 250 == 249:
                print(f"{pair + 1} pairs: {statistics.median(ratios):+.2f} %", file=sys.stderr)
        for event in events:
            fcntl.ioctl(event, ENABLE, 0)
        recorder.send_signal(signal.SIGCONT)
        load.requests = STEADY_REQUESTS
        load.slice()
        windows = []
        for _ in range(OWN_WINDOWS):
            own_before, began = all_threads_cpu_ns(recorder.pid), time.monotonic_ns()
            while time.monotonic_ns() - began < options.own_seconds * 1_000_000_000 / OWN_WINDOWS:
                load.slice()
            windows.append((all_threads_cpu_ns(recorder.pid) - own_before) / (time.monotonic_ns() - began) * 100)
        recorder.send_signal(signal.SIGINT)
        recorder.wait()
        floor = floor_cpu(folder, workers, load, options.own_seconds // 5)

    extra, low, high = interval(ratios)
    own, own_low, own_high = interval(windows)
    holds = own_high <= OWN_CPU_BAR and high <= WORKER_CPU_BAR
    print(f"result: our CPU {own:.2f} % of one core [{own_low:.2f}, {own_high:.2f}] (bar {OWN_CPU_BAR} %), of which the "
          f"system calls that copy stacks, alone, take {floor:.2f} %; workers' CPU per request {extra:+.2f} % "
          f"[{low:+.2f}, {high:+.2f}] in {len(ratios)} paired slices (bar +{WORKER_CPU_BAR} %)")
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
