"""Measures for `bench/kernel/run`, which see."""

import argparse
import json
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
# pylint: disable=wrong-import-position
from interval import middle, text

PROGRAMS = "fixtures/programs/python"
SLICES, SLIP = "target/release/examples/kernel_slices", "target/release/slip"
PYTHON = os.environ.get("PYTHON", "python3")

#: Most work that the sampler may take from the target, by rate, and most of one core that it may use itself, per cent.
WORK_BARS, OWN_BAR = {99: 1.0, 997: 3.0}, 0.5
#: Recordings of 20 s that tell our own CPU.
OWN_RUNS = 5
#: Most CPU time that a wait may take more, per cent, and how many waits a second the two processes are to do: somewhat more than 60,000.
WAIT_BAR, WAITS_PER_SECOND = 10.0, 61_000
#: So many pairs of processes, one after the other: each has its place in memory for as long as it lives.
PAIRS = 10
#: Most by which a wait may differ from the truth, per cent.
TRUTH_BAR = 2.0
#: Most by which the recorder's memory may grow between the second and the last fifth of a recording: a part of it, and this.
GROWTH_BAR, GROWTH_KIB = 0.05, 1_024
#: Page views a second, which keep eight workers of WordPress busy for half of the two cores.
PAGES_PER_SECOND = 15

#: The functions of waits.py, and what each waits for.
REASONS = {
    "sleeps": "sleep",
    "waits_for_socket": "socket",
    "waits_for_pipe": "pipe",
    "waits_for_lock": "lock",
    "waits_for_page": "page_fault",
    "waits_for_several": "poll",
    "waits_for_child": "child",
    "is_stopped": "stopped",
}


class Program:
    """A program of ours that says when it is ready."""

    def __init__(self, name, *arguments):
        self.process = subprocess.Popen(
            [PYTHON, f"{PROGRAMS}/{name}", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said = self.line().split()

    def line(self, seconds=120):
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            sys.exit(f"error: {self.process.args} says nothing")
        return self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in [self.process.pid, *map(int, self.said[1:])]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


def slices(pids, rounds, slice_ms, variants, work_file=None):
    """What each slice took, by round and variant, and how many samples were lost."""
    environment = {**os.environ, **({"WORK_FILE": work_file} if work_file else {})}
    command = [SLICES, ",".join(map(str, pids)), str(rounds), str(slice_ms), *variants]
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    by_round = [{} for _ in range(rounds)]
    for line in lines[:-1]:
        by_round[line["round"]][line["variant"]] = line
    return by_round, lines[-1]["lost"]


def own_cpu(pid, rate, mode, seconds=20):
    """What a recording of so long takes of a core, per cent, as it says itself."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/own.slip"
        asked = ["--sampler", "kernel", "--mode", mode, "-r", str(rate), "-d", str(seconds), "--pid", str(pid), "-q", "-o", path]
        subprocess.run([SLIP, "record", *asked], stderr=subprocess.DEVNULL, check=True)
        report = subprocess.run([SLIP, "report", path, "--format", "json"], stdout=subprocess.PIPE, check=True)
    return 100 * json.loads(report.stdout)["quality"]["own_cpu_share_of_core"]


def cost(options):
    """The work of a busy target, and our CPU."""
    failed, parts = 0, []
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(bytes(8))
        file.flush()
        with Program("works.py", file.name, 16) as target:
            for rate, bar in WORK_BARS.items():
                variants = ["none", *(f"{kind}:{rate}" for kind in ("event", "empty", "cpu", "wall"))]
                by_round, lost = slices([target.process.pid], options.rounds, options.slice, variants, file.name)
                print(f"\n{rate} Hz, {options.rounds} slices of {options.slice} ms of each, {lost} samples lost")
                for variant in variants[1:]:
                    speed = lambda line: line["work"] / line["wall_ns"]
                    less = middle([100 - 100 * speed(line[variant]) / speed(line["none"]) for line in by_round])
                    print(f"{variant:<10} work {text(less)} % less than alone")
                    if variant.startswith(("cpu", "wall")):
                        # A slice is a recording that has just begun, all of whose stacks are new.
                        own = middle([own_cpu(target.process.pid, rate, variant.split(":")[0]) for _ in range(OWN_RUNS)])
                        print(f"{variant:<10} our CPU {text(own)} % of a core")
                        failed += less[2] > bar or own[2] > OWN_BAR
                        parts.append(f"{variant}: work {text(less)} % less (bar {bar:.0f}), our CPU {text(own)} % (bar {OWN_BAR})")
                    else:
                        parts.append(f"{variant}: {text(less)} %")
    print("result: " + "; ".join(parts))
    return failed


def on_one_cpu(target):
    """The processes of pingpong.py, from now on with the same CPU, which who is woken does not take from who wakes it."""
    pids = [target.process.pid, int(target.said[1])]
    for pid in pids:
        os.sched_setaffinity(pid, {max(os.sched_getaffinity(0))})
        os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))
    return pids


def waits_a_second(work):
    """In the best of some slices: what else the machine does makes them fewer, by 40 % for seconds."""
    with Program("pingpong.py", 16, work) as target:
        by_round, _ = slices(on_one_cpu(target), 8, 200, ["none"])
    return max(line["none"]["switches"] * 1e9 / line["none"]["wall_ns"] for line in by_round)


def work_between():
    """So many turns of a loop between two waits that there are about WAITS_PER_SECOND. What a turn takes depends on how many there are, so
    each guess is measured."""
    work, per_turn_ns = 300, 20
    for _ in range(5):
        more_ns = 1e9 / WAITS_PER_SECOND - 1e9 / waits_a_second(work)
        work = max(0, work + round(more_ns / per_turn_ns))
    return work


def per_wait(line):
    return line["cpu_ns"] / line["switches"]


def more_of(line):
    """Per cent of CPU more that a wait takes that is seen."""
    return 100 * per_wait(line["offcpu"]) / per_wait(line["none"]) - 100


def waits(options):
    """CPU time per wait of two processes that wait for each other.

    Who is woken waits for the CPU until the other one waits (SCHED_BATCH), so that each turn is one wait. Without that a round is two
    waits, or one and a loss of the CPU, and being seen changes how often it is which.

    Both have one CPU. With two, most of a wait is that the machine puts a CPU to sleep and wakes it, and how often it does depends on
    where the processes happen to be and on what else runs: then waits were twice as many, and 43 % cheaper, with us as without.
    """
    work, by_round, lost = work_between(), [], 0
    for _ in range(PAIRS):
        with Program("pingpong.py", 16, work) as target:
            rounds, more_lost = slices(on_one_cpu(target), max(1, options.rounds // PAIRS), options.slice, ["none", "offcpu"])
        by_round += rounds
        lost += more_lost
        found = middle([more_of(line) for line in rounds])
        print(f"{text(found)} % more", flush=True)
    more = middle([more_of(line) for line in by_round])
    alone = statistics.median(per_wait(line["none"]) for line in by_round)
    rates = {kind: statistics.median(line[kind]["switches"] * 1e9 / line[kind]["wall_ns"] for line in by_round)
             for kind in ("none", "offcpu")}
    print(f"result: {rates['none']:,.0f} waits a second, 17 frames deep, {alone / 1e3:.2f} us of CPU each; seen by us {text(more)} % more "
          f"(bar {WAIT_BAR:.0f}), {rates['offcpu']:,.0f} waits a second; {lost} lost")
    return int(more[2] > WAIT_BAR)


def waits_so_far(path):
    """What the waits in a recording that goes on were for; nothing if there is none yet."""
    report = subprocess.run([SLIP, "report", path, "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return json.loads(report.stdout)["waits"]["by_reason"] if report.returncode == 0 else []


def blocked_as(stacks, function):
    """Microseconds that a function was blocked in collapsed stacks, by what for."""
    found = {}
    for line in stacks.splitlines():
        stack, weight = line.rsplit(" ", 1)
        blocked = re.search(r";\[(?:waits: )?([^]]+)\]$", stack)
        if blocked and blocked[1] != "ready" and f";{function} (" in stack:
            reason = blocked[1].replace(" ", "_")
            found[reason] = found.get(reason, 0) + int(weight)
    return found


def truth(options):
    """Waits against what the program measures itself."""
    with tempfile.TemporaryDirectory() as folder, Program("waits.py", options.times) as target:
        path = f"{folder}/waits.slip"
        recorder = subprocess.Popen(
            [SLIP, "record", "--pid", str(target.process.pid), "--sampler", "kernel", "--mode", "offcpu", "-q", "-o", path]
        )
        # The program waits for a line: when that is in the file, what it waits for next will be.
        while not os.path.exists(path) or not waits_so_far(path):
            if recorder.poll() is not None:
                sys.exit("error: the recorder has ended")
            time.sleep(0.1)
        print("go", file=target.process.stdin, flush=True)
        true = json.loads(target.line())
        recorder.send_signal(signal.SIGINT)
        recorder.wait()
        report = subprocess.run([SLIP, "report", path, "--format", "json", "--top", "100"], stdout=subprocess.PIPE, check=True)
        stacks = subprocess.run([SLIP, "report", path, "--format", "collapsed"], stdout=subprocess.PIPE, text=True, check=True)
    report = json.loads(report.stdout)
    functions = {row["name"]: row for row in report["functions"]["by_own"]}
    failed, parts = 0, []
    for name, reason in REASONS.items():
        # Without the time in which it was ready, which the program cannot tell from the wait.
        seen = functions[name]["own_ns"] - functions[name]["own_on_cpu_ns"]
        off = 100 * (seen / true[name] - 1)
        failed += abs(off) > TRUTH_BAR
        parts.append(f"{name} {off:+.2f} %")
        as_what = blocked_as(stacks.stdout, name)
        right = as_what.get(reason, 0) / sum(as_what.values())
        failed += right < 1 - TRUTH_BAR / 100
        print(f"{name:<18} {true[name] / 1e6:9.2f} ms, seen {seen / 1e6:9.2f} ms, {off:+.2f} %, {100 * right:.2f} % of it as {reason}")
    print("result: " + ", ".join(parts) + f" (bar {TRUTH_BAR:.0f}); each for what it was")
    return failed


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next((int(line.split()[1]) for line in file if line.startswith("VmRSS:")), None)


def soak(options):
    """PHP-FPM workers and a program with many threads in one recording: nothing is lost, and memory does not grow."""
    workers, resident = os.environ["STACK_FPM_WORKER_PIDS"].split(), []
    with tempfile.TemporaryDirectory() as folder, Program("many_threads.py") as target:
        path = f"{folder}/soak.slip"
        load = ["labs/stack/stack", "load", "--target", "wordpress", "--rate", str(PAGES_PER_SECOND), "--concurrency", str(len(workers)),
                "--seconds", str(options.seconds + 60)]
        load = subprocess.Popen(load, stdout=subprocess.DEVNULL)
        pids = [word for pid in [*workers, str(target.process.pid)] for word in ("--pid", pid)]
        recorder = subprocess.Popen([SLIP, "record", "--sampler", "kernel", "--mode", "wall", "-r", "99", "-d", str(options.seconds), *pids,
                                     "-q", "-o", path])
        while recorder.poll() is None:
            resident.append(resident_kib(recorder.pid))
            time.sleep(1)
        if recorder.returncode:
            sys.exit("error: the recorder has failed")
        load.terminate()
        load.wait()
        report = [SLIP, "report", path, "--top", "1000", "--format"]
        shown = lambda form: subprocess.run([*report, form], stdout=subprocess.PIPE, text=True, check=True).stdout
        report, stacks = json.loads(shown("json")), [line.rsplit(" ", 1) for line in shown("collapsed").splitlines()]
        size = os.path.getsize(path)
    resident, quality = [kib for kib in resident if kib], report["quality"]
    print("resident KiB:", *resident, file=sys.stderr)
    fifth = len(resident) // 5
    then, last = statistics.median(resident[fifth:2 * fifth]), statistics.median(resident[-fifth:])
    waits = sum(row["count"] for row in report["waits"]["by_reason"])
    unknown_us = sum(int(us) for stack, us in stacks if "[unreadable]" in stack)
    threads = max(process["threads"] for process in report["processes"])
    failed, torn = quality["samples_failed"], quality["samples_torn"]
    holds = failed == 0 and last <= then * (1 + GROWTH_BAR) + GROWTH_KIB and threads >= 200 and len(report["processes"]) == len(workers) + 1
    print(f"result: {options.seconds} s of {len(workers)} FPM workers and a process of {threads} threads: {quality['samples']:,} samples, {waits:,} "
          f"waits, {failed} lost (bar 0), {unknown_us / 1000:.1f} ms where is not known, {torn} looks torn; our memory {then / 1024:.1f} MiB in "
          f"the second fifth, {last / 1024:.1f} in the last (bar {100 * GROWTH_BAR:.0f} % + {GROWTH_KIB / 1024:.0f} MiB more), our CPU "
          f"{100 * quality['own_cpu_share_of_core']:.1f} % of a core, file {size / 1e6:.1f} MB")
    return not holds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["cost", "waits", "truth", "soak"])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--slice", type=int, default=200)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=600)
    options = parser.parse_args()
    failed = {"cost": cost, "waits": waits, "truth": truth, "soak": soak}[options.part](options)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
