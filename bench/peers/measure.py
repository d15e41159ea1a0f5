"""Slices of a busy target's time, alone and watched by each tool in turn. For `bench/peers/run`, which see.

A slice begins when a tool has had time to start, and ends before it is told to stop, so neither its start nor what it writes at its end
is counted: where the peers add up and write everything at the end that is in their favour, ours writes all the time. Within a slice the
CPU time of the tool is read from its process's clock, which counts all of its threads, also those that have ended, and all that the
kernel does for it; the target's work is what it counts in memory that we share with it.

Samples are counted by each tool itself, from its own begin to its end. What is asked for is the rate times that time. *Looked* are all
looks that were taken on the way, *kept* those that gave a stack: a look that came too late is in neither, one that failed or was torn
is in the former only. Torn are stacks that moved: of a program that calls functions all the time some are, at any rate.

A program that only wakes up as often shows what of it is the machine's: where a hypervisor takes part in each timer and each halt of a
CPU, that is a large part, and wake-ups that come too late are nobody's fault. The same with one read of eight bytes of the target is the
least that any sampler from outside can cost; what ours takes on top of that, as a part of what the peer does, is told beside the bar.
"""

import argparse
import json
import mmap
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
# pylint: disable=wrong-import-position
from interval import middle, text

SLIP, PROGRAMS = "target/release/slip", "fixtures/programs/python"

#: What a program is started with after the file in which it counts.
ARGUMENTS = {"still": ("works.py", "16"), "calls": ("calls.py",)}

#: Most CPU of ours, as a part of that of the better peer, at this rate.
CPU_BAR, CPU_BAR_RATE = 1 / 3, 1_000
#: Least part of the samples asked for at this rate, per cent.
LOOKED_BAR, LOOKED_BAR_RATE = 99.0, 10_000

#: Time for a tool to start, and how long one may take to end: a peer first writes what it has.
START_S, END_S = 1.5, 60

TOOLS = {"slip": "slip", "sleeps": "waking up alone", "reads": "waking up and one read", "tachyon": "profiling.sampling", "spy": "py-spy --nonblocking", "spy-stops": "py-spy (stops the target)"}
PEERS = ("tachyon", "spy")


def cpu_ns(pid):
    """CPU time of all threads of a process, by its clock: `CPUCLOCK_SCHED` of `include/linux/posix-timers_types.h`."""
    return time.clock_gettime_ns(~pid << 3 | 2)


class Target:
    """A program in the root folder, and the folder for what is put there."""

    def __init__(self, root, name):
        self.root = root
        self.home = tempfile.mkdtemp(prefix="bench-peers.", dir=f"{root}/slip")
        self.inside = self.home.removeprefix(root)
        program, *arguments = ARGUMENTS[name]
        shutil.copy(f"{PROGRAMS}/{program}", self.home)
        with open(f"{self.home}/work", "wb+") as file:
            file.write(bytes(8))
            file.flush()
            self.memory = mmap.mmap(file.fileno(), 8)
        command = ["fixtures/roots/roots", "run", "python", "--proc", "--", "python3.15", f"{self.inside}/{program}", f"{self.inside}/work"]
        self.process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        if not select.select([self.process.stdout], [], [], 60)[0] or self.process.stdout.readline() != "ready\n":
            sys.exit(f"error: {program} does not start")

    def work(self):
        return struct.unpack_from("<Q", self.memory, 0)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)


class Slip:
    def __init__(self, options, target, rate, folder):
        self.rate, self.file = rate, f"{folder}/ours.slip"
        self.command = [SLIP, "record", "--sampler", "outside", "--mode", "wall", "-r", str(rate), "--pid", str(target.pid), "-q",
                        "--force", "-o", self.file]

    def delivered(self, _):
        report = subprocess.run([SLIP, "report", self.file, "--format", "json"], stdout=subprocess.PIPE, check=True).stdout
        report = json.loads(report)
        quality = report["quality"]
        kept, lost = quality["samples"], quality["samples_torn"] + quality["samples_failed"]
        return kept + lost, kept, self.rate * report["wall_ns"] / 1e9


class Tachyon:
    def __init__(self, options, target, rate, folder):
        self.rate = rate
        # In the target's own root folder, where both see the same files and processes.
        self.command = ["nsenter", "--target", str(target.pid), "--mount", "--root", "--wd=/", "python3.15", "-m",
                        "profiling.sampling", "attach", "-r", str(rate), "-d", "3600", "--collapsed", "-o", f"{target.inside}/stacks",
                        str(target.pid)]

    def delivered(self, said):
        looked, seconds = re.search(r"Captured ([\d,]+) samples? in ([\d.,]+) seconds", said).groups()
        failed = float(re.search(r"Error rate: ([\d.]+)", said).group(1))
        looked = int(looked.replace(",", ""))
        return looked, looked * (1 - failed / 100), self.rate * float(seconds.replace(",", ""))


class Spy:
    """It does not say how long it has sampled: from its first line, just before it begins, to the moment when it is told to stop."""

    flags = ["--nonblocking"]

    def __init__(self, options, target, rate, folder):
        self.rate = rate
        self.command = [options.py_spy, "record", *self.flags, "-r", str(rate), "-d", "3600", "-f", "raw", "-o", f"{folder}/stacks",
                        "--pid", str(target.pid)]

    def delivered(self, said):
        kept, failed = map(int, re.search(r"Samples: (\d+) Errors: (\d+)", said).groups())
        return kept + failed, kept, None


class SpyThatStops(Spy):
    flags = []


class Sleeps:
    def __init__(self, options, target, rate, folder):
        self.rate, self.command = rate, [f"{folder}/sleeps", str(rate)]
        if not os.path.exists(self.command[0]):
            subprocess.run(["cc", "-O2", "-o", self.command[0], "bench/peers/sleeps.c"], check=True)

    def delivered(self, said):
        taken, seconds = said.split(" in ")
        return int(taken), int(taken), self.rate * float(seconds)


class Reads(Sleeps):
    def __init__(self, options, target, rate, folder):
        super().__init__(options, target, rate, folder)
        with open(f"/proc/{target.pid}/maps", encoding="utf-8") as maps:
            heap = next(line for line in maps if line.rstrip().endswith("[heap]"))
        self.command += [str(target.pid), heap.split("-")[0]]


KINDS = {"sleeps": Sleeps, "reads": Reads, "slip": Slip, "tachyon": Tachyon, "spy": Spy, "spy-stops": SpyThatStops}


def watch(kind, options, target, rate, folder):
    """One slice with a tool, or with none; what it took, and what the tool delivered."""
    tool = KINDS[kind](options, target, rate, folder) if kind in KINDS else None
    process = None
    if tool:
        environment = {**os.environ, "LC_ALL": "C", "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(tool.command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        said = ""
        if isinstance(tool, Spy):
            said = process.stdout.readline()
        began = time.monotonic()
        time.sleep(START_S)
    before = time.monotonic_ns(), target.work(), cpu_ns(process.pid) if tool else 0
    time.sleep(options.seconds)
    after = time.monotonic_ns(), target.work(), cpu_ns(process.pid) if tool else 0
    wall_ns, work, cpu = (now - then for now, then in zip(after, before))
    found = {"speed": work / wall_ns, "cpu": 100 * cpu / wall_ns}
    if tool:
        sampled = time.monotonic() - began
        process.send_signal(signal.SIGINT)
        try:
            said += process.communicate(timeout=END_S)[0]
            looked, kept, asked = tool.delivered(said)
        except (AttributeError, subprocess.SubprocessError):
            process.kill()
            sys.exit(f"error: {TOOLS[kind]} does not do what it should; it said: {said}")
        asked = asked or rate * sampled
        found.update(looked=100 * looked / asked, kept=100 * kept / asked)
    return found


def measure(options, rate, name):
    """All rounds at one rate with one program; lines for the result, and how many bars failed."""
    rounds = []
    with Target(options.root, name) as target, tempfile.TemporaryDirectory() as folder:
        watch("slip", options, target, rate, folder)
        for number in range(options.rounds):
            order = ["alone", *TOOLS]
            # Another order in each round: what comes first has no advantage.
            order = order[number % len(order):] + order[:number % len(order)]
            rounds.append({kind: watch(kind, options, target, rate, folder) for kind in order})
    print(f"\n{rate} Hz, program `{name}`, {options.rounds} slices of {options.seconds} s of each")
    print(f"{'tool':<26} {'CPU, % of a core':>24} {'work less, %':>24} {'looked, % of asked':>24} {'kept, % of asked':>24}")
    found = {}
    for kind, tool in TOOLS.items():
        column = lambda what: [line[kind][what] for line in rounds]
        less = [100 - 100 * line[kind]["speed"] / line["alone"]["speed"] for line in rounds]
        found[kind] = {"cpu": middle(column("cpu")), "less": middle(less), "looked": middle(column("looked")), "kept": middle(column("kept"))}
        print(f"{tool:<26} " + " ".join(f"{text(found[kind][what]):>24}" for what in ("cpu", "less", "looked", "kept")), flush=True)
    better = min(PEERS, key=lambda kind: found[kind]["cpu"][0])
    part_of_better = lambda kind, less: middle([(line[kind]["cpu"] - less(line)) / (line[better]["cpu"] - less(line)) for line in rounds])
    ratio = part_of_better("slip", lambda line: 0)
    least = part_of_better("reads", lambda line: 0)
    above = part_of_better("slip", lambda line: line["reads"]["cpu"])
    ours, failed = found["slip"], 0
    of_better = f"{text(ratio)} of that of {TOOLS[better]}, {found[better]['cpu'][0]:.1f} %"
    part = f"{rate} Hz, {name}: CPU {text(ours['cpu'])} % of a core, {of_better}"
    if rate == CPU_BAR_RATE:
        failed += ratio[2] > CPU_BAR
        part += f" (bar {CPU_BAR:.2f}; waking up with one read alone takes {text(least)}, on top of that ours {text(above)})"
    part += f", waking up alone {found['sleeps']['cpu'][0]:.2f} %, with one read {found['reads']['cpu'][0]:.2f} %; looked {text(ours['looked'])} % of the asked"
    if rate == LOOKED_BAR_RATE:
        failed += ours["looked"][1] < LOOKED_BAR
        part += f" (bar {LOOKED_BAR:.0f})"
    each = lambda what: " and ".join(f"{found[peer][what][0]:.1f}" for peer in PEERS)
    part += (f", waking up alone {found['sleeps']['looked'][0]:.2f}, peers {each('looked')}; kept {ours['kept'][0]:.1f} %, peers {each('kept')}; "
             f"the target did {text(ours['less'])} % less, with peers {each('less')}")
    return part, failed


def main():
    # As an exception: what was started is stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Tools are told to end with it, and what is started in the background of a script inherits that it is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser()
    parser.add_argument("--py-spy", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rate", type=int, action="append")
    parser.add_argument("--program", choices=list(ARGUMENTS), action="append")
    options = parser.parse_args()
    parts, failed = [], 0
    for rate in options.rate or (1_000, 10_000):
        for name in options.program or list(ARGUMENTS):
            part, bars = measure(options, rate, name)
            parts.append(part)
            failed += bars
    print("result: " + "; ".join(parts))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
