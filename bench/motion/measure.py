"""Measures for `bench/motion/run`, which see.

All readers look at the same process, in turns, and are judged by the same rules, which are taken from the program's source:

- impossible: a caller that never calls the callee, or another outermost function than the program's;
- wrong line: a caller at a line that does not call the callee;
- failed: samples that were tried and gave no stack (errors, torn, lost);
- distance: half of the sum of the differences between the shares of all stacks (functions, not lines) and those of the reference,
  for which the target is stopped; noise is what is to be expected between two such samples of one and the same distribution.
  How sure it is that one is farther than another, rounds tell: of two that are right, chance decides.
"""

import argparse
import ast
import collections
import json
import math
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

from interval import text

#: The reference is taken so often at most: what has been stopped runs more slowly for a while, and not all of it by as much. With 5,000 stops a
#: second the main loop had up to 1 % less of the time than with 2,000, and what each reader saw was that much nearer or farther.
REFERENCE_HZ = 997

MOTION, ROOTS, PROGRAMS = "target/release/examples/motion", "fixtures/roots/roots", pathlib.Path("fixtures/programs")
TARGET_CPU, READER_CPU = "0", "1"
#: Readers take turns so often: what a target does differently from one minute to the next, all see alike.
ROUNDS = 20
#: So many where who is nearest is not sure before.
MOST_ROUNDS = 80
#: Half of the interval that holds with 95 %, of so many rounds (Student's t, 19 degrees of freedom).
DEVIATIONS = 2.09

PATHS = ["plain", "c", "generator", "sum", "deep"]
OPCACHE = ["opcache.enable_cli=1", "opcache.file_update_protection=0"]
VARIANTS = {
    "": ["opcache.enable_cli=0"],
    "-opcache": OPCACHE,
    "-jit": [*OPCACHE, "opcache.jit=tracing", "opcache.jit_buffer_size=64M"],
    "-jit-function": [*OPCACHE, "opcache.jit=function", "opcache.jit_buffer_size=64M"],
}

#: Who calls whom in bench_flutter.php, by a text that is on the line of the call.
PHP_CALLS = [
    ("run", "{main}", "run(hrtime(true)"),
    ("hrtime", "{main}", "run(hrtime(true)"),
    ("hrtime", "run", "hrtime(true);"),
    ("a1", "run", " a1();"),
    ("a2", "a1", "return a2()"),
    ("a3", "a2", "return a3()"),
    ("leaf", "a3", "leaf(20 "),
    ("b1", "run", "b1($object);"),
    ("b2", "b1", "return b2($b)"),
    ("B::b3", "b2", "$b->b3()"),
    ("B::b4", "B::b3", "self::b4($n)"),
    ("leaf", "B::b4", "leaf($n "),
]

#: In Python our outside sampler may have so much of the impossible and failed stacks of the best peer; in PHP, per cent.
PEER_BAR, IMPOSSIBLE_BAR, DROPPED_BAR = 0.5, 1.0, 10.0
PEERS = ["tachyon", "py-spy"]


def percent(part, whole):
    return 100 * part / whole if whole else 0.0


class Rules:
    """What can be true of a program: its outermost function, and who calls whom at which lines."""

    def __init__(self, outermost, calls):
        self.outermost, self.lines = outermost, collections.defaultdict(set)
        for callee, caller, line in calls:
            self.lines[callee, caller].add(line)

    @classmethod
    def of_python(cls, source, path):
        """From the comments of flutter.py."""
        calls, numbered = [], list(enumerate(source.splitlines(), 1))
        functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
        for line, text in (both for both in numbered if "# calls " in both[1]):
            inside = [node.name for node in functions if node.lineno <= line <= node.end_lineno]
            caller = inside[0] if inside else "<module>"
            for callee in text.split("# calls ")[1].split():
                # Of the main loop the one path counts that this process takes.
                if caller != "main" or callee in (path + "_a", path + "_b"):
                    calls.append((last_part(callee), caller, line))
        return cls("<module>", calls)

    @classmethod
    def of_php(cls, source):
        numbered = list(enumerate(source.splitlines(), 1))
        return cls("{main}", [(callee, caller, line) for callee, caller, text in PHP_CALLS for line, has in numbered if text in has])

    def is_possible(self, names):
        pairs = zip(names[1:], names)
        return names[:1] == (self.outermost,) and all(pair in self.lines for pair in pairs)

    def has_right_lines(self, stack):
        return all(line in self.lines[callee, caller] for (callee, _), (caller, line) in zip(stack[1:], stack))

    @staticmethod
    def path_of(names):
        """a or b; nothing in the loop that calls both."""
        of = names[2:3] and names[2]
        return {"a1": "a", "b1": "b"}.get(of) or (of[-1] if of and of[-2:] in ("_a", "_b") else None)


def last_part(name):
    """Not all readers show where a function was defined."""
    return name.rsplit(".", 1)[-1]


class Target:
    """A running program."""

    def __init__(self, name, command, root, program, arguments, rules):
        self.name, self.rules, self.root = name, rules, root
        self.is_python = name.startswith("python")
        folder = tempfile.mkdtemp(prefix="motion.", dir=f"{root}/slip" if root else None)
        self.folder = pathlib.Path(folder)
        shutil.copy(PROGRAMS / program, folder)
        inside = folder.removeprefix(root) if root else folder
        # With a /proc of its own, for a reader of the same root.
        enter = [ROOTS, "run", pathlib.Path(root).name, "--proc", "--"] if root else []
        self.process = subprocess.Popen(
            ["taskset", "-c", TARGET_CPU, *enter, *command, f"{inside}/{pathlib.Path(program).name}", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUTF8": "1"},
        )
        self.pid = self.process.pid
        if self.line() != "ready":
            sys.exit(f"error: {name} does not say that it is ready")
        if not self.is_python:
            print("go", file=self.process.stdin, flush=True)

    def line(self, seconds=30):
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            sys.exit(f"error: {self.name} says nothing")
        return self.process.stdout.readline().strip()

    def spent(self):
        """What a Python program spent in each path since it was asked last."""
        os.kill(self.pid, signal.SIGUSR1)
        return json.loads(self.line())

    def end(self):
        """What a PHP program spent in each path."""
        truth = None
        if not self.is_python:
            os.kill(self.pid, signal.SIGTERM)
            truth = json.loads(self.line())
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder)
        return truth


def root_of(name):
    found = subprocess.run([ROOTS, "path", name], capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else None


def targets(mode):
    """Name and a function that starts it, or the reason why it cannot be started. A mode that asks for exceptions finds one all the time."""
    php_source = (PROGRAMS / "php/bench_flutter.php").read_text()
    python_source = (PROGRAMS / "python/flutter.py").read_text()

    def start(name, command, root, program, arguments, rules):
        exists = root is not None and os.path.exists(root + command[0])
        return name, (lambda: Target(name, command, root, program, arguments, rules)) if exists else f"there is no {command[0]}"

    for version, root in (("8.2", ""), ("8.4", root_of("php"))):
        for variant, settings in VARIANTS.items():
            command = [f"/usr/bin/php{version}", *(f"-d{setting}" for setting in settings)]
            yield start(f"php{version}{variant}", command, root, "php/bench_flutter.php", ["3600", "1"], Rules.of_php(php_source))
    state = ["exception"] if mode == "exception" else []
    for version, root in (("3.11", ""), ("3.15", root_of("python"))):
        for path in PATHS:
            rules = Rules.of_python(python_source, path)
            yield start(f"python{version}-{path}", [f"/usr/bin/python{version}"], root, "python/flutter.py", [path, *state], rules)


class Seen:
    """What a reader saw of a target."""

    def __init__(self):
        self.asked = self.tried = self.failed = 0
        self.stacks = collections.Counter()
        self.spent = collections.Counter()

    def add(self, other):
        self.asked += other.asked
        self.tried += other.tried
        self.failed += other.failed
        self.stacks.update(other.stacks)
        self.spent.update(other.spent)

    @property
    def shown(self):
        return self.stacks.total()

    def named(self):
        """How often each stack was seen, without its lines."""
        counts = collections.Counter()
        for stack, count in self.stacks.items():
            counts[tuple(name for name, _ in stack)] += count
        return counts

    def shares(self):
        return {names: count / self.shown for names, count in self.named().items()}

    def impossible(self, rules):
        return sum(count for stack, count in self.stacks.items() if not rules.is_possible(tuple(name for name, _ in stack)))

    def wrong_lines(self, rules):
        return sum(
            count for stack, count in self.stacks.items()
            if rules.is_possible(tuple(name for name, _ in stack)) and not rules.has_right_lines(stack)
        )

    def share_of_a(self):
        paths = collections.Counter()
        for stack, count in self.stacks.items():
            paths[Rules.path_of(tuple(name for name, _ in stack))] += count
        return percent(paths["a"], paths["a"] + paths["b"])


def distance(one, other):
    return apart(one.shares(), other.shares())


def farther(rounds, reader, other, reference):
    """How much farther from the reference a reader is than another one, per cent, and the interval that holds it with 95 %, by
    leaving out one of the rounds that both had after the other (the jackknife): a target does not do the same in each."""
    names = (reader, other, reference)
    count = min(len(rounds[name]) for name in names)
    named = {name: [part.named() for part in rounds[name][:count]] for name in names}
    sums = {name: sum(parts, collections.Counter()) for name, parts in named.items()}

    def difference(without=None):
        shares = {}
        for name, counts in sums.items():
            less = named[name][without] if without is not None else {}
            rest = max(1, counts.total() - sum(less.values()))
            shares[name] = {names: (count - less.get(names, 0)) / rest for names, count in counts.items()}
        return apart(shares[reader], shares[reference]) - apart(shares[other], shares[reference])

    found, parts = difference(), [difference(without) for without in range(count)] if count > 1 else [0.0]
    middle = sum(parts) / len(parts)
    half = DEVIATIONS * math.sqrt((count - 1) / count * sum((part - middle) ** 2 for part in parts))
    return found, found - half, found + half


def apart(one, other):
    return 50 * sum(abs(one.get(names, 0) - other.get(names, 0)) for names in one.keys() | other.keys())


def noise(one, other):
    """What to expect of `distance` if both are samples of one distribution."""
    rate = 1 / max(one.shown, 1) + 1 / max(other.shown, 1)
    return 50 * sum(math.sqrt(2 / math.pi * share * (1 - share) * rate) for share in other.shares().values())


def run(command, **more):
    """Runs a reader on its CPU, and gives what it printed."""
    ran = subprocess.run(["taskset", "-c", READER_CPU, *command], capture_output=True, text=True, **more)
    if ran.returncode:
        sys.exit(f"error: {' '.join(map(str, command))}: {ran.stderr or ran.stdout}")
    return ran.stdout + ran.stderr


def read_ours(reader, target, samples, rate):
    # Several times the time that it takes: the machine may be busy. The reference cannot be taken as often.
    limit = samples / rate * (1 if reader == "paused" else 10)
    said = json.loads(run([MOTION, str(target.pid), reader, str(samples), str(rate), str(limit)]))
    seen = Seen()
    seen.asked, seen.tried, seen.failed = said["asked"], said["tried"], said["failed"]
    for stack, count in said["stacks"]:
        seen.stacks[tuple((last_part(name), line) for name, line in stack)] += count
    return seen


def read_by_peer(target, samples, rate, command, output, pattern, frame):
    """One line for each stack: frames, the outermost first, and how often it was seen."""
    said = run(command)
    seen = Seen()
    seen.asked = samples
    with open(output) as lines:
        for line in lines:
            stack, count = line.rsplit(" ", 1)
            frames = [re.fullmatch(frame, text) for text in stack.split(";")]
            seen.stacks[tuple((last_part(found["name"]), int(found["line"] or 0)) for found in frames if found and found["name"])] += int(count)
    os.unlink(output)
    numbers = [int(number.replace(",", "")) for number in re.search(pattern, said).groups()]
    # One says how many samples it took, the other how many of them failed as well.
    seen.tried = numbers[0] if len(numbers) == 1 else seen.shown + numbers[1]
    seen.failed = seen.tried - seen.shown
    return seen


def read_by_tachyon(target, samples, rate, mode, variables=()):
    seconds = max(1, round(samples / rate))
    inside = f"/slip/{target.folder.name}.txt"
    # It finds the interpreter only by the paths that the target has for it; and there are no locales.
    enter = ["env", "LC_ALL=C", "PYTHONUTF8=1", *variables, "nsenter", "--target", str(target.pid), "--mount", "--root", "--wd"]
    profiler = ["/usr/bin/python3.15", "-m", "profiling.sampling", "attach", "--collapsed", "--no-gc", "--mode", mode]
    command = [*enter, *profiler, "-r", str(rate), "-d", str(seconds), "-o", inside, str(target.pid)]
    frame = r"tid:\d+|[^:]*:(?P<name>.*):(?P<line>\d+)"
    return read_by_peer(target, seconds * rate, rate, command, target.root + inside, r"Captured ([\d,]+) sample", frame)


def read_by_wheel(target, samples, rate, mode):
    """The same program with our class in the place of its own."""
    module = target.folder / "module"
    if not module.exists():
        shutil.copytree("python/slipstream", module / "slipstream", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy("target/wheel/lib_native.so", module / "slipstream/_native.abi3.so")
        shutil.copytree("python/tests/shim", module / "shim", ignore=shutil.ignore_patterns("__pycache__"))
    inside, log = f"/slip/{target.folder.name}/module", module / "made"
    log.write_text("")
    variables = [f"PYTHONPATH={inside}/shim:{inside}", f"SLIPSTREAM_SHIM_LOG={inside}/made"]
    seen = read_by_tachyon(target, samples, rate, mode, variables)
    if {line.split()[1] for line in log.read_text().splitlines()} != {"slipstream"}:
        sys.exit("error: the profiler did not use our class")
    return seen


def read_by_py_spy(target, samples, rate):
    seconds = max(1, round(samples / rate))
    output = f"{target.folder}.txt"
    command = [py_spy(), "record", "--nonblocking", "--idle", "--format", "raw", "-r", str(rate), "-d", str(seconds)]
    frame = r"(?P<name>.*) \(.*?(?::(?P<line>\d+))?\)"
    return read_by_peer(
        target, seconds * rate, rate, [*command, "-o", output, "-p", str(target.pid)], output, r"Samples: (\d+) Errors: (\d+)", frame
    )


def py_spy(known=[]):
    if not known:
        installed = subprocess.run(["bash", "-c", ". bench/lib/peers.sh; py_spy"], stdout=subprocess.PIPE, text=True)
        if installed.returncode:
            sys.exit(installed.returncode)
        known.append(installed.stdout.strip())
    return known[0]


def readers_of(name, options):
    if options.quick:
        return ["kernel"]
    readers = ["kernel", "outside", "frames", "paused"]
    if name.startswith("python3.15"):
        readers += ["tachyon", "wheel"]
    if name.endswith("-plain"):
        readers.append("py-spy")
    return [reader for reader in readers if not options.reader or reader in options.reader]


def measure(target, readers, options):
    """What each reader saw in each round. Where it is not sure yet that the kernel's sampler is nearer to the reference than another
    reader, these three take more rounds."""
    rounds = {reader: [] for reader in readers}
    take_rounds(target, rounds, readers, options)
    while "kernel" in rounds and len(rounds.get("paused", [])) in range(ROUNDS, MOST_ROUNDS):
        others = [name for name in rivals(rounds) if farther(rounds, "kernel", name, "paused")[2] > 0]
        if not others:
            break
        take_rounds(target, rounds, ["kernel", *others, "paused"], options)
    return rounds


def rivals(rounds):
    """Who may be nearer to the reference than the kernel's sampler. The wheel is compared with the profiler whose class it replaces."""
    return [name for name, parts in rounds.items() if name not in ("kernel", "paused", "wheel") and together(parts).shown]


def take_rounds(target, rounds, readers, options):
    samples = math.ceil(options.samples / options.rounds)
    for number in range(options.rounds):
        for at in range(len(readers)):
            # Another order in each round: what comes first has no advantage.
            reader = readers[(at + number) % len(readers)]
            if target.is_python:
                target.spent()
            if reader in ("tachyon", "wheel"):
                read = read_by_tachyon if reader == "tachyon" else read_by_wheel
                part = read(target, samples, options.rate, options.mode)
            elif reader == "py-spy":
                part = read_by_py_spy(target, samples, options.rate)
            elif reader == "paused":
                # Half as many, as it takes long.
                part = read_ours(reader, target, math.ceil(samples / 2), min(options.rate, REFERENCE_HZ))
            else:
                part = read_ours(reader, target, samples, options.rate)
            if target.is_python:
                part.spent.update(target.spent())
            rounds[reader].append(part)


def together(parts):
    seen = Seen()
    for part in parts:
        seen.add(part)
    return seen


def show(target, rounds, seen, truth, options):
    reference = seen.get("paused")
    # What the reference was in every other round.
    halves = [together(rounds.get("paused", [])[first::2]) for first in (0, 1)]
    for reader, found in seen.items():
        spent = truth or found.spent
        shown, rules = found.shown, target.rules
        is_reference = found is reference
        columns = [
            f"{target.name:<22} {reader:<8} {found.asked:8} {percent(found.tried, found.asked):6.1f}%",
            f"{percent(found.failed, found.tried):7.3f}% {shown:7} {percent(found.impossible(rules), shown):8.4f}%",
            f"{percent(found.wrong_lines(rules), shown):8.4f}%",
            f"{found.share_of_a():6.2f}% {percent(spent['a'], spent['a'] + spent['b']):6.2f}%",
        ]
        if is_reference and all(half.shown for half in halves):
            columns.append(f"{distance(*halves):6.2f}% {noise(*halves):5.2f}%")
        elif reference and not is_reference and shown and reference.shown:
            columns.append(f"{distance(found, reference):6.2f}% {noise(found, reference):5.2f}%")
        print(" ".join(columns), flush=True)
    if options.stacks:
        shares = {reader: found.shares() for reader, found in seen.items()}
        for names in sorted({names for share in shares.values() for names in share}):
            each = " ".join(f"{100 * share.get(names, 0):7.3f}" for share in shares.values())
            print(f"    {each}  {'' if target.rules.is_possible(names) else 'IMPOSSIBLE '}{' > '.join(names)}")


class Bars:
    """Which bars hold, and by how much."""

    def __init__(self):
        self.failed = []
        self.impossible = self.lost = self.taken = self.kernel_targets = 0
        self.nearest, self.farther, self.least, self.farthest = 0, [], 0, 0.0
        self.python, self.php, self.wheel = [], [], []

    def check(self, target, rounds, seen, options):
        rules, reference, outside = target.rules, seen.get("paused"), seen.get("outside")
        if kernel := seen.get("kernel"):
            impossible = kernel.impossible(rules)
            self.impossible += impossible
            self.lost += kernel.failed
            self.taken += kernel.tried
            self.kernel_targets += 1
            untrue = impossible + kernel.wrong_lines(rules)
            self.hold(untrue == 0 and kernel.failed == 0 and kernel.tried >= options.samples, f"{target.name} kernel")
        others = rivals(rounds)
        if kernel and reference and others:
            self.farthest = max(self.farthest, distance(kernel, reference))
            self.least += 1
            more = max(farther(rounds, "kernel", name, "paused") for name in others)
            self.nearest += more[0] <= 0
            if more[0] > 0:
                self.farther.append(f"{target.name} {text(more)} % farther than the nearest")
            self.hold(more[0] <= 0, f"{target.name} distance")
        if (wheel := seen.get("wheel")) and (stock := seen.get("tachyon")) and reference:
            figures = [
                [percent(found.impossible(rules), found.tried), percent(found.failed, found.tried), distance(found, reference)]
                for found in (wheel, stock)
            ]
            self.wheel.append(f"{target.name} {' + '.join(f'{ours:.2f} ({theirs:.2f})' for ours, theirs in zip(*figures))} %")
            self.hold(all(ours <= theirs for ours, theirs in zip(*figures)), f"{target.name} wheel")
        peers = {peer: seen[peer] for peer in PEERS if peer in seen and seen[peer].tried}
        if outside and target.is_python and peers and target.name.endswith("-plain"):
            # Both together: to show everything, true or not, is no better than to say that it is not known.
            untrue = lambda found: percent(found.impossible(rules) + found.failed, found.tried)
            best = min(peers, key=lambda peer: untrue(peers[peer]))
            self.python.append(
                f"{target.name} {percent(outside.impossible(rules), outside.tried):.3f} + {percent(outside.failed, outside.tried):.2f} % ({best} "
                f"{percent(peers[best].impossible(rules), peers[best].tried):.2f} + {percent(peers[best].failed, peers[best].tried):.2f} %)"
            )
            self.hold(untrue(outside) <= PEER_BAR * untrue(peers[best]), f"{target.name} outside")
        if outside and not target.is_python:
            both = percent(outside.impossible(rules), outside.shown), percent(outside.failed, outside.tried)
            self.php.append(both)
            self.hold(both[0] < IMPOSSIBLE_BAR and both[1] <= DROPPED_BAR, f"{target.name} outside")

    def hold(self, holds, name):
        if not holds:
            self.failed.append(name)

    def result(self):
        parts = []
        if self.kernel_targets:
            parts.append(
                f"kernel: {self.impossible} impossible and {self.lost} failed of {self.taken:,} samples of {self.kernel_targets} targets (bar 0)"
            )
        if self.least:
            rest = f" (else {', '.join(self.farther)})" if self.farther else ""
            parts.append(f"nearest to the reference in {self.nearest} of {self.least}{rest}, at most {self.farthest:.2f} % off")
        if self.python:
            parts.append(f"outside, impossible and failed: {', '.join(self.python)} (bar half of the best)")
        if self.wheel:
            parts.append(f"RemoteUnwinder, impossible, failed and distance (CPython's own): {', '.join(self.wheel)} (bar no more)")
        if self.php:
            impossible, dropped = map(max, zip(*self.php))
            parts.append(f"outside, PHP: at most {impossible:.3f} % impossible (bar {IMPOSSIBLE_BAR:.0f}), {dropped:.1f} % dropped (bar {DROPPED_BAR:.0f})")
        if self.failed:
            parts.append(f"not: {', '.join(self.failed)}")
        return "result: " + "; ".join(parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--rate", type=int, default=9_973)
    parser.add_argument("--target", action="append")
    parser.add_argument("--reader", action="append")
    parser.add_argument("--mode", default="wall", choices=["wall", "cpu", "gil", "exception"])
    parser.add_argument("--stacks", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    options.samples = options.samples or (3_000 if options.quick else 100_000)
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    bars, skipped, passed, failed = Bars(), 0, 0, 0
    heads = "asked tried failed shown impossible line A A_real distance noise".split()
    print(f"{'target':<22} {'reader':<8} " + "{:>8} {:>7} {:>8} {:>7} {:>9} {:>9} {:>7} {:>7} {:>7} {:>6}".format(*heads))
    for name, start in targets(options.mode):
        if options.target and not any(name.startswith(wanted) for wanted in options.target):
            continue
        if os.cpu_count() < 2:
            start = "there is one CPU"
        if isinstance(start, str):
            skipped += 1
            print(f"skipped: {name}: {start}", file=sys.stderr)
            continue
        target = start()
        try:
            rounds = measure(target, readers_of(name, options), options)
        finally:
            truth = target.end()
        seen = {reader: together(parts) for reader, parts in rounds.items()}
        show(target, rounds, seen, truth, options)
        before = len(bars.failed)
        bars.check(target, rounds, seen, options)
        if len(bars.failed) == before:
            passed += 1
        else:
            failed += 1
            print(f"not ok {name}: {', '.join(bars.failed[before:])}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    print(bars.result())
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
