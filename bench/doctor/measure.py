"""Measures for `bench/doctor/run`, which see."""

import argparse
import contextlib
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
# pylint: disable=wrong-import-position
from fastcgi import FastCgi
from interval import middle, text
from kept import PAIRS, Kept
from lab import DRAGS, SYMFONY, Lab, Stack, children
from sheets import TARGETS, sheets

SLIP = os.environ.get("SLIP", "target/release/slip")

#: What the quota of the story leaves of each period, and how long that is, microseconds.
QUOTA_US, PERIOD_US = 5_000, 20_000
#: So long is a worker held back that has used its part up alone: what its waits have to be near to, milliseconds, and how near.
HELD_MS = (PERIOD_US - QUOTA_US) / 1e3
NEAR = 0.25
#: Pages of WordPress each second: less CPU than the quota leaves. One at a time, since two workers on two CPUs use their part up in half
#: the time, and are held back for longer.
RATE_HZ, CLIENTS = 4, 1
#: Of the pool.
WORKERS = 4
#: Most by which what is predicted may differ from what is measured then.
PREDICTION_BAR = 20.0
#: Sheets of each lab, of which the median counts.
SHEETS = 3
#: How long a lab is watched, as it is if nothing is said, and a slice of load is, seconds.
WATCH_S, SLICE_S = 15, 2
#: Operations of the native program.
OPERATIONS = 20_000
#: Of the one whose allocator keeps nothing, and how it is told to keep blocks.
WORDS_OPERATIONS, WORDS_KEEP = 8_000, {"WORDS_KEEP_BLOCKS": "1"}
#: Most by which times and shares may differ from what the program's own clock says, per cent.
CLOCK_BAR = 10.0
#: The dictionary of 64 MiB costs that at the begin and at the end, at least, milliseconds.
DICTIONARY_MS = 1.0
#: Both ways, innermost first: as the source has them.
WORDS_WAYS = {
    "mmap": "map_block < block_take < table_open < count_words < main",
    "munmap": "unmap_block < block_give < table_close < count_words < main",
}


def doctor(*target, **environment):
    """The sheet of what is watched."""
    command = [SLIP, "doctor", "--format", "json", *map(str, target)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}, check=False)
    if not ran.stdout:
        sys.exit(f"error: slip doctor {shlex.join(map(str, target))} ended with {ran.returncode}")
    return json.loads(ran.stdout)


def findings(sheet, rule):
    return [finding for finding in sheet["findings"] if finding["rule"] == rule]


def values(statements, name):
    """The values of that name among sentences."""
    return [statement["values"][name] for statement in statements if name in statement["values"]]


class Quota:
    """A control group with a part of a CPU, for processes that run."""

    def __init__(self, pids):
        with open("/proc/mounts") as mounts:
            mounts = [line.split() for line in mounts]
        first = [path for _, path, kind, options, *_ in mounts if kind == "cgroup" and "cpu" in options.split(",")]
        self.is_first = bool(first)
        root = first[0] if first else next(path for _, path, kind, *_ in mounts if kind == "cgroup2")
        self.root, self.folder, self.pids = root, f"{root}/slip-doctor-{os.getpid()}", pids
        if not self.is_first:
            self.write(f"{root}/cgroup.subtree_control", "+cpu")
        os.mkdir(self.folder)
        self.set(QUOTA_US)
        for pid in pids:
            self.write(f"{self.folder}/cgroup.procs", pid)

    def set(self, quota_us):
        """That much of each period, or all of it."""
        if self.is_first:
            self.write(f"{self.folder}/cpu.cfs_period_us", PERIOD_US)
            self.write(f"{self.folder}/cpu.cfs_quota_us", quota_us or -1)
        else:
            self.write(f"{self.folder}/cpu.max", f"{quota_us or 'max'} {PERIOD_US}")

    @staticmethod
    def write(path, what):
        with open(path, "w") as file:
            file.write(str(what))

    def remove(self):
        for pid in self.pids:
            # Those that have ended are in no group.
            with contextlib.suppress(OSError):
                self.write(f"{self.root}/cgroup.procs", pid)
        os.rmdir(self.folder)


def story(_options):
    """WordPress with its object cache in Redis."""
    stack = Stack("--children", WORKERS, "--object-cache", "redis")
    failed = []
    try:
        stack.run("seed")
        workers = children(int(stack.values["STACK_FPM_PID"]))
        target = ["--fpm", stack.values["STACK_FPM_POOL"], "--fpm-master", stack.values["STACK_FPM_PID"], "--duration", 15]
        visit(stack, 3).communicate()
        quota = Quota(workers)
        try:
            held, before = watch(stack, target)
            quota.set(None)
            free, after = watch(stack, target)
        finally:
            quota.remove()
    finally:
        stack.down()
    found = findings(held, "WAKE003")
    if [finding["cause"] for finding in found] != ["cpu_quota"]:
        print(json.dumps(held["findings"], indent=1))
        sys.exit(f"result: WAKE003 says {[finding['cause'] for finding in found]} under a quota")
    finding = found[0]
    held_ms = [statement["values"]["p95_ns"] / 1e6 for statement in finding["evidence"] if "held back" in statement["text"]]
    times = values(finding["evidence"], "count")
    throttled, periods = (values(finding["evidence"], name)[:1] for name in ("throttled", "periods"))
    if not held_ms or abs(held_ms[0] / HELD_MS - 1) > NEAR:
        failed.append("p95")
    if not any("another client library would not help" in fix["text"] for fix in finding["fixes"]):
        failed.append("the client")
    if findings(free, "WAKE003"):
        print(json.dumps(findings(free, "WAKE003"), indent=1))
        failed.append("gone")
    print(
        f"result: quota {QUOTA_US / 1e3:.0f}/{PERIOD_US / 1e3:.0f} ms: cause {finding['cause']}, confidence {finding['confidence']}, "
        f"{finding['cost']['ns'] / 1e6:.1f} ms of a page of {held['unit']['mean_ns'] / 1e6:.1f}; held back {times} times, "
        f"p95 of these {held_ms} ms (near {HELD_MS:.0f}), {throttled} of {periods} periods throttled; "
        f"raised: {'WAKE003 gone' if 'gone' not in failed else 'WAKE003 still there'}, page {free['unit']['mean_ns'] / 1e6:.1f} ms; clients' p95 {before} "
        f"and {after} ms{'; not: ' + ', '.join(failed) if failed else ''}"
    )
    return 1 if failed else 0


def visit(stack, seconds):
    """Pages of WordPress, for so long."""
    return stack.load("--target", "wordpress", "--rate", RATE_HZ, "--concurrency", CLIENTS, "--seconds", seconds)


def watch(stack, target):
    """A sheet of the stack under load, and what the load generator's clients waited for."""
    load = visit(stack, 18)
    sheet = doctor(*target)
    return sheet, json.loads(load.communicate()[0].strip().splitlines()[-1])["p95_ms"]


def allocator(_options):
    """A program whose allocator maps and unmaps in each operation, because the cache in front of that is off."""
    failed = []
    with tempfile.TemporaryDirectory(prefix="slip-bench.", dir="/var/tmp") as folder:
        subprocess.run(["labs/allocator/build", folder], check=True)
        command = [f"{folder}/words", WORDS_OPERATIONS, f"{folder}/words.json"]
        recording = f"{folder}/words.slip"
        off = doctor("--ops", WORDS_OPERATIONS, "--output", recording, "--", *command)
        with open(command[-1]) as file:
            clock = json.load(file)
        again = doctor("--ops", WORDS_OPERATIONS, recording)
        on = doctor("--ops", WORDS_OPERATIONS, "--", *command, **WORDS_KEEP)
    found = findings(off, "MEM004")
    if len(found) != 1 or found[0]["cause"] != "mapping":
        print(json.dumps(off["findings"], indent=1))
        sys.exit(f"result: MEM004 says {[finding['cause'] for finding in found]}")
    finding = found[0]
    own = {"mmap": clock["map_ns"] / WORDS_OPERATIONS, "munmap": clock["unmap_ns"] / WORDS_OPERATIONS}
    sites = {said["values"]["call"]: said["values"] for said in finding["evidence"] if "way" in said["values"]}
    if list(sites) != list(own):
        failed.append(f"sites {list(sites)}")
    differ, parts = [], []
    for call, ns in own.items():
        site = sites.get(call, {})
        function, way = site.get("function", ""), site.get("way", "")
        if not function.startswith(WORDS_WAYS[call].split(" ")[0] + " ") or not way.endswith(WORDS_WAYS[call]):
            failed.append(f"way of {call}: {way}")
        if site.get("rate") != 1.0:
            failed.append(f"rate of {call}: {site.get('rate')}")
        said_ns = site.get("share", 0) * finding["cost"]["ns"]
        differ.append(abs(100 * (said_ns / ns - 1)))
        parts.append(f"{call} by {function}: {said_ns / 1e3:.1f} us by the sheet, {ns / 1e3:.1f} by its own clock")
    of_calls = sum(own.values())
    for call, ns in own.items():
        share = sites.get(call, {}).get("share", 0) / max(sum(site["share"] for site in sites.values()), 1e-9)
        differ.append(abs(100 * (share / (ns / of_calls) - 1)))
    if max(differ) > CLOCK_BAR:
        failed.append("the clock")
    counted = [said["values"] for said in finding["evidence"] if "nothing is kept" in said["text"]]
    if [(said["maps"], said["unmaps"]) for said in counted] != [(1.0, 1.0)]:
        failed.append(f"counters {counted}")
    apart = {name: values(finding["ruled_out"], f"{name}_ns")[:1] for name in ("startup", "exit")}
    if any(not ns or ns[0] / 1e6 < DICTIONARY_MS for ns in apart.values()):
        failed.append(f"start-up and exit {apart}")
    if finding["confidence"] != "high":
        failed.append("confidence")
    if findings(again, "MEM004") != found:
        failed.append("the recording says something else")
    if findings(on, "MEM004"):
        print(json.dumps(findings(on, "MEM004"), indent=1))
        failed.append("found with the cache on")
    unit = off["unit"]["mean_ns"]
    print(
        f"result: cache off: MEM004 {finding['cause']}, confidence {finding['confidence']}, {finding['cost']['ns'] / 1e3:.1f} us of an operation of "
        f"{unit / 1e3:.1f} ({100 * finding['cost']['ns'] / unit:.0f} %); {'; '.join(parts)}; times and shares differ by {max(differ):.1f} % at most "
        f"(bar {CLOCK_BAR:.0f}); maps and unmaps per operation {[(said['maps'], said['unmaps']) for said in counted]}; apart: start-up {apart['startup'][0] / 1e6 if apart['startup'] else 0:.1f} ms, "
        f"exit {apart['exit'][0] / 1e6 if apart['exit'] else 0:.1f} ms; cache on: {len(findings(on, 'MEM004'))} findings of MEM004, an operation takes {on['unit']['mean_ns'] / 1e3:.1f} us"
        f"{'; not: ' + ', '.join(failed) if failed else ''}"
    )
    return 1 if failed else 0


class Drag:
    """A lab with a drag, and how to take it away."""

    def __init__(self, rule, lab):
        self.rule, self.lab = rule, lab

    def sheet(self):
        raise NotImplementedError

    def slice_ms(self, is_fixed):
        """For how long a unit takes on average."""
        raise NotImplementedError

    def saved_ms(self, number):
        """How much less it takes in the slice of that number. The one that is first changes."""
        times = {is_fixed: self.slice_ms(is_fixed) for is_fixed in (bool(number % 2), not number % 2)}
        return times[False] - times[True]

    def down(self):
        """The lab goes on to the next one."""


class Connections(Drag):
    """Connections that the extension keeps."""

    def __init__(self, rule, client, do):
        super().__init__(rule, None)
        self.kept = Kept(client, do)

    def sheet(self):
        return json.loads(self.kept.watch([SLIP, "doctor", "--format", "json", "--duration", str(WATCH_S)]))

    def saved_ms(self, number):
        return self.kept.saved_ms()

    def down(self):
        self.kept.down()


class Boot(Drag):
    """A page of Symfony that boots in each request, and one whose state after a first request is restored."""

    PAGE, VISITS_HZ = "/glossary/2", 30

    def __init__(self, rule):
        built = subprocess.run(["ext/compile", "8.2"], check=True, stdout=subprocess.PIPE, text=True)
        self.extension = built.stdout.strip().splitlines()[-1]
        extension = f"warm.php,extension={os.path.abspath(self.extension)}"
        super().__init__(rule, Lab(SYMFONY, "SLIP_SYMFONY_DIR", f"boots={extension},slipstream.enable=0", f"restores={extension}"))
        self.front = f"{self.lab.folder}/app/public/warm.php"
        self.pools = {is_fixed: FastCgi(f"{self.lab.folder}/php/{name}.sock", self.front, [self.PAGE]) for is_fixed, name in ((False, "boots"), (True, "restores"))}
        for pool in self.pools.values():
            pool.run(1, SLICE_S)

    def sheet(self):
        """Visitors come one by one, so that the trial has a CPU of its own as the measurement after it."""
        done = threading.Event()

        def visit():
            while not done.wait(1 / self.VISITS_HZ):
                self.pools[False].ask(self.pools[False].messages[0])

        load = threading.Thread(target=visit)
        load.start()
        sheet = doctor("--fpm", "boots", "--duration", WATCH_S, "--trial", self.front, "--url", self.PAGE)
        done.set()
        load.join()
        return sheet

    def saved_ms(self, number):
        less = []
        for pair in range(PAIRS):
            took = {is_fixed: self.pools[is_fixed].ask(self.pools[is_fixed].messages[0]) for is_fixed in (bool(pair % 2), not pair % 2)}
            less.append(1e3 * (took[False] - took[True]))
        return statistics.median(less)

    def down(self):
        self.lab.down()


class Raised(Drag):
    """A quota that is raised while the workers run."""

    def __init__(self, rule, labs, name):
        super().__init__(rule, labs)
        self.name = name

    def up(self, name):
        self.lab.run("up", name)
        return self.target()

    def target(self):
        shown = self.lab.run("env")
        words = (word for line in shown.splitlines() for word in shlex.split(line.removeprefix("export ")))
        return next(word.partition("=")[2] for word in words if word.startswith("DRAGS_TARGET=")).split()

    def sheet(self):
        target = self.up(self.name)
        load = subprocess.Popen([DRAGS, "load", self.name, str(WATCH_S + 2)], env=self.lab.environment, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        sheet = doctor(*target, "--duration", WATCH_S)
        load.wait()
        return sheet

    def slice_ms(self, is_fixed):
        self.up(self.name)
        with open(f"{self.lab.folder}/run/quota") as path:
            folder = path.read().strip()
        if os.path.exists(f"{folder}/cpu.max"):
            file, free = f"{folder}/cpu.max", "max"
        else:
            file, free = f"{folder}/cpu.cfs_quota_us", "-1"
        with open(file) as now:
            before = now.read()
        try:
            if is_fixed:
                Quota.write(file, free)
            return json.loads(self.lab.run("load", self.name, str(SLICE_S)))["mean_ms"]
        finally:
            Quota.write(file, before)


class Program(Drag):
    """A native program whose environment tells glibc when to give memory back: soon, as is done to save it, or hardly ever."""

    DRAG = {"MALLOC_TRIM_THRESHOLD_": "131072"}
    FIXED = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "134217728"}

    def __init__(self, rule, labs, name):
        super().__init__(rule, labs)
        labs.run("up", name)
        self.program, self.times = f"{labs.folder}/native/churn", f"{labs.folder}/native/drag.json"

    def command(self):
        return [self.program, "malloc", str(OPERATIONS), self.times]

    def sheet(self):
        return doctor("--ops", OPERATIONS, "--", "env", *(f"{name}={value}" for name, value in self.DRAG.items()), *self.command())

    def slice_ms(self, is_fixed):
        subprocess.run(self.command(), env={**os.environ, **(self.FIXED if is_fixed else self.DRAG)}, check=True)
        with open(self.times) as file:
            return json.load(file)["operation_ms"]


#: By name.
DRAGS_FIXED = {
    "connections": lambda _labs: Connections("CONN002", "phpredis", "gets"),
    "commands": lambda _labs: Connections("CONN002", "small", "commands"),
    "boot": lambda _labs: Boot("BOOT001"),
    "quota": lambda labs: Raised("WAKE003", labs, "quota"),
    "memory": lambda labs: Program("MEM004", labs, "churn"),
}


def predicted(name, drag):
    """What the sheet says would be saved."""
    sheet = drag.sheet()
    found = findings(sheet, drag.rule)
    gain = found[0]["gain"] if len(found) == 1 else None
    if not gain:
        said = [(place, entry["says"]["text"]) for place in ("quiet", "too_little", "not_of") for entry in sheet[place] if entry["rule"] == drag.rule]
        sys.exit(f"error: {name}: {drag.rule} predicts nothing: {found or said}")
    return gain


def predictions(options):
    labs = Lab(DRAGS, "SLIP_DRAGS_DIR", "well")
    parts, failed = [], []
    try:
        for name in options.drag or DRAGS_FIXED:
            drag = DRAGS_FIXED[name](labs)
            try:
                # In turns, so that the machine is as fast for both.
                gains, less = [], []
                for number in range(options.rounds):
                    if number * SHEETS // options.rounds == len(gains):
                        gains.append(predicted(name, drag))
                        # What has had nothing to do meanwhile answers sooner at first: a PHP-FPM that keeps connections by 0.1 ms.
                        drag.saved_ms(number)
                    less.append(drag.saved_ms(number))
                saved = middle(less)
            finally:
                drag.down()
            low, high = (statistics.median(gain[end] for gain in gains) / 1e6 for end in ("low_ns", "high_ns"))
            off = 100 * abs((low + high) / 2 / saved[0] - 1)
            parts.append(f"{name}: {drag.rule} predicts {low:.3f} to {high:.3f} ms less, {text(saved, 3)} were; its middle is {off:.0f} % off")
            print(parts[-1], flush=True)
            if off > PREDICTION_BAR:
                failed.append(name)
    finally:
        labs.down()
    print(f"result: {'; '.join(parts)} (bar {PREDICTION_BAR:.0f} %); {options.rounds} rounds, {SHEETS} sheets each{'; not: ' + ', '.join(failed) if failed else ''}")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("story")
    commands.add_parser("allocator")
    of_predictions = commands.add_parser("predictions")
    of_predictions.add_argument("--rounds", type=int, default=16)
    of_predictions.add_argument("--drag", action="append", choices=DRAGS_FIXED)
    of_sheets = commands.add_parser("sheets")
    of_sheets.add_argument("folder")
    of_sheets.add_argument("--target", action="append", choices=TARGETS)
    options = parser.parse_args()
    return {"story": story, "allocator": allocator, "predictions": predictions, "sheets": sheets}[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
