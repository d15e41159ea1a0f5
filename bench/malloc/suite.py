"""The patterns of the usual suites of allocator benchmarks (`patterns/*.c`) with libslipmalloc, beside its peers. `bench/malloc/run patterns`.

All allocators run in turns, the order turned by one in each round: of these is what is said of memory. Then those that may be the best peer, and
mimalloc, run beside ours in more rounds, of which is what is said of CPU time. A ratio is the median of the ratios of the rounds, with the
interval that holds it with 95 %, by order. A bar holds when the whole interval is on its better side; where the bar lies within, the two are not separated
by these rounds, and it does not hold yet. Of CPU time instructions decide then, which repeat: ours beside those of the peer with the fewest.

  CPU time    of mimalloc 2, over ours: the geometric mean of the medians of all patterns
              ours, over that of the best peer: each pattern
  memory      ours, over the mean of the three peers with the lowest peaks: each pattern
"""

import argparse
import math
import os
import statistics
import subprocess
import sys

import preload

sys.path.insert(0, os.path.join(preload.HERE, "..", "lib"))
# pylint: disable=wrong-import-position
from interval import middle, text

#: Program, operations, whether by several threads, further arguments.
PATTERNS = {
    "xmalloc": ("xmalloc", 20_000_000, True, []),
    "larson": ("larson", 20_000_000, True, []),
    "mstress": ("mstress", 3_000_000, True, []),
    "cfrac": ("cfrac", 20_000_000, False, []),
    "cache-scratch": ("cache", 1_000_000_000, True, ["scratch"]),
    "cache-thrash": ("cache", 1_000_000_000, True, ["thrash"]),
    "alloc-test1": ("alloc_test", 10_000_000, False, []),
    "alloc-testN": ("alloc_test", 10_000_000, True, []),
    "sh6": ("sh", 20_000_000, True, ["sh6"]),
    "sh8": ("sh", 20_000_000, True, ["sh8"]),
    # By one thread, and as many, as the suite has it.
    "malloc-large": ("malloc_large", 2_000, False, []),
}

OURS = "slipmalloc"
#: Of which ours is to be so many times as fast, over all patterns.
FASTER_THAN, FASTER_BAR = ("mimalloc", "mimalloc2"), 1.05
#: Most CPU time for that of the best peer.
CPU_BAR = 1.1
#: Most memory for the mean of so many peers with the lowest peaks.
MEMORY_BAR, MEMORY_PEERS = 1.1, 3

#: May be the best peer: who takes at most so many times the CPU time of the best so far, and of these so many.
NEAR, MOST_NEAR = 1.15, 4

#: More than any allocator needs for it, of malloc-large and of the others.
BACKED_MB = {"malloc_large": 1024}
USUAL_BACKED_MB = 128

#: Parts of the operations with which instructions are counted: what the one takes more than the other is without start and end.
COUNTED = (10, 5)

#: A pattern takes some seconds.
MOST_S = 300


class Left(Exception):
    """An allocator that cannot be measured with a pattern."""


def measure(command, library):
    """Nanoseconds of CPU per operation, and the peak of resident memory in kB."""
    preload.back_memory(BACKED_MB.get(os.path.basename(command[0]), USUAL_BACKED_MB))
    try:
        done = subprocess.run(command, env=preload.environment(library), capture_output=True, text=True, timeout=MOST_S)
    except subprocess.TimeoutExpired:
        raise Left(f"no end after {MOST_S} s") from None
    if done.returncode != 0:
        raise Left(f"status {done.returncode}: {done.stderr.strip()}")
    each_ns, peak_kb, malloc = done.stdout.split(maxsplit=2)
    # The loader goes on without what it cannot preload.
    if library and not os.path.samefile(malloc.strip(), library):
        raise Left(f"malloc() is that of {malloc.strip()}")
    return float(each_ns), int(peak_kb)


def measure_all(commands, allocators, libraries, rounds):
    """For each pattern and each of its allocators the CPU times and the peaks of all rounds. What fails once is left out of the pattern."""
    found = {pattern: {name: ([], []) for name in names} for pattern, names in allocators.items()}
    for number in range(rounds):
        for pattern, names in allocators.items():
            command, turn = commands[pattern], number % len(names)
            for name in names[turn:] + names[:turn]:
                if name not in found[pattern]:
                    continue
                try:
                    each_ns, peak_kb = measure(command, libraries[name])
                except Left as reason:
                    if name == OURS:
                        sys.exit(f"error: {pattern} with {name}: {reason}")
                    preload.skip(f"{pattern} with {name}", reason)
                    del found[pattern][name]
                    continue
                found[pattern][name][0].append(each_ns)
                found[pattern][name][1].append(peak_kb)
    return found


def ratios(above, below):
    return middle([one / other for one, other in zip(above, below)])


def geometric_mean(found):
    """Of medians, with the interval that theirs make: patterns do not depend on each other, so their variances add up."""
    logarithms = [[math.log(each) for each in one] for one in found]
    mean = statistics.mean(one[0] for one in logarithms)
    half = math.sqrt(sum(((high - low) / 2) ** 2 for _, low, high in logarithms)) / len(found)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def at_most(found, bar):
    """What the interval says of a bar."""
    _, low, high = found
    return "holds" if high <= bar else "does not hold" if low > bar else "not separated"


def rivals(times):
    """Those peers that may be the best, by the CPU time of each."""
    peers = sorted((name for name in times if name != OURS), key=times.get)
    return [name for name in peers if times[name] <= NEAR * times[peers[0]]][:MOST_NEAR]


def best_peers(results, what):
    """Peers, those with the least CPU time (0) or peak (1) first."""
    return sorted((name for name in results if name != OURS), key=lambda name: statistics.median(results[name][what]))


def print_pattern(pattern, command, results):
    print(f"{pattern}: {' '.join([os.path.basename(command[0]), *command[1:]])}")
    print(f"{'':>14}{'CPU ns':>14}{'peak MB':>9}  CPU time of slipmalloc's")
    for name, (cpu, peak) in results.items():
        ratio = text(ratios(cpu, results[OURS][0]))
        print(f"{name:>14}{statistics.median(cpu):14.2f}{statistics.median(peak) / 1024:9.1f}  {ratio}", flush=True)


def print_table(found, names):
    print("CPU time of slipmalloc's, and the peak of memory in MB")
    print(f"{'':>14}" + "".join(f"{name:>14}" for name in names))
    for pattern, results in found.items():
        cells = ""
        for name in names:
            if name in results:
                cpu, peak = results[name]
                cells += f"{ratios(cpu, results[OURS][0])[0]:8.2f}{statistics.median(peak) / 1024:6.0f}"
            else:
                cells += f"{'-':>14}"
        print(f"{pattern:>14}{cells}")


class Bars:
    """What is told at the end."""

    def __init__(self):
        self.holds = True
        self.parts = []

    def faster_than(self, found, peer):
        """Over all patterns."""
        both = [results for results in found.values() if peer in results]
        if not both:
            return
        mean = geometric_mean([ratios(results[peer][0], results[OURS][0]) for results in both])
        # Of the inverse, which is at most the bar's.
        verdict = at_most((1 / mean[0], 1 / mean[2], 1 / mean[1]), 1 / FASTER_BAR)
        self.tell(f"CPU time of {peer} over ours {text(mean)} over {len(both)} patterns (bar {FASTER_BAR}) {verdict}", verdict)

    def each(self, found, what, bar, ratio_of, decide=None):
        """Of each pattern. `ratio_of` gives the ratio and whom it is to. Where that is not separated from the bar, `decide` gives another ratio, and what
        of, or None."""
        print(f"{what} (bar {bar})")
        worst, others = None, []
        for pattern, results in found.items():
            if len(results) == 1:
                continue
            ratio, peers = ratio_of(results)
            verdict = at_most(ratio, bar)
            told, is_clear = f"{text(ratio)} {verdict}", verdict == "holds"
            decided = decide(pattern, results) if decide and verdict == "not separated" else None
            if decided:
                exact, of = decided
                verdict = at_most((exact, exact, exact), bar)
                told += f", {exact:.2f} {of} {verdict}"
            print(f"{pattern:>14}  {told} {peers}", flush=True)
            self.holds = self.holds and verdict == "holds"
            if not is_clear:
                others.append(f"{pattern} {told}")
            if worst is None or ratio[0] > worst[0]:
                worst = ratio[0], f"most {text(ratio)} with {pattern}"
        if worst:
            self.parts.append(f"{what}: {'; '.join(others) or worst[1]} (bar {bar})")

    def tell(self, part, verdict):
        print(part)
        self.parts.append(part)
        self.holds = self.holds and verdict == "holds"


def cpu_ratio(results):
    peer = best_peers(results, 0)[0]
    return ratios(results[OURS][0], results[peer][0]), peer


def instructions_ratio(command, names, libraries):
    """Ours over the fewest of those peers that run under valgrind, and whose these are. None if ours does not, or no peer."""
    counts = {}
    for name in names:
        try:
            some, more = (preload.instructions(libraries[name], [command[0], str(int(command[1]) // part), *command[2:]]) for part in COUNTED)
        except subprocess.CalledProcessError as error:
            preload.skip(f"instructions of {os.path.basename(command[0])} with {name}", f"status {error.returncode}")
            continue
        counts[name] = more - some
    if OURS not in counts or len(counts) == 1:
        return None
    best = min((name for name in counts if name != OURS), key=counts.get)
    return counts[OURS] / counts[best], f"of {best}'s instructions"


def memory_ratio(results):
    peers = best_peers(results, 1)[:MEMORY_PEERS]
    means = [statistics.mean(peaks) for peaks in zip(*(results[name][1] for name in peers))]
    return ratios(results[OURS][1], means), ", ".join(peers)


def programs(patterns, threads):
    """The command of each pattern, compiled anew."""
    folder = f"{preload.REPOSITORY}/target/alloc/patterns"
    os.makedirs(folder, exist_ok=True)
    commands = {}
    for pattern in patterns:
        program, operations, is_threaded, arguments = PATTERNS[pattern]
        source = f"{preload.HERE}/patterns/{program}.c"
        flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-D_GNU_SOURCE", "-pthread"]
        subprocess.run(["gcc", *flags, source, "-o", f"{folder}/{program}"], check=True)
        commands[pattern] = [f"{folder}/{program}", str(operations), str(threads if is_threaded else 1), *arguments]
    return commands


def allocators(wanted):
    """Those that are there, ours last."""
    found = {"glibc": None} if "glibc" in wanted else {}
    for name in preload.PACKAGES:
        library = preload.packaged(name) if name in wanted else None
        if library:
            found[name] = library
        elif name in wanted:
            preload.skip(name, "its package cannot be had")
    found |= preload.newer(name for name in preload.BUILT if name in wanted)
    usual, secure = preload.ours()
    return found | ({"secure": secure} if "secure" in wanted else {}) | {OURS: usual}


def finalists(results):
    """Those that are measured more often."""
    times = {name: statistics.median(cpu) for name, (cpu, _) in results.items()}
    near = rivals(times)
    return near + [name for name in FASTER_THAN if name in times and name not in near] + [OURS]


def main(values):
    peers = ["glibc", *preload.PACKAGES, *preload.BUILT]
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="run patterns", description=__doc__, formatter_class=formatter)
    parser.add_argument("--first-rounds", type=int, default=5, metavar="N", help="with all peers, default 5")
    parser.add_argument("--rounds", type=int, default=40, metavar="N", help="with those that may be the best, default 40; fewer than 7 tell little")
    parser.add_argument("--threads", type=int, default=max(2, os.cpu_count()), metavar="N", help="default: one a CPU, 2 at least")
    names = [*PATTERNS, *peers, "secure"]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"may be repeated: {', '.join(names)}")
    arguments = parser.parse_args(values)
    only = set(arguments.only or [])

    commands = programs([name for name in PATTERNS if name in only] or PATTERNS, arguments.threads)
    compared = allocators(only.intersection(peers + ["secure"]) or peers)
    versions = {preload.BUILT[name][0] for name in compared if name in preload.BUILT}
    print(f"sources of {', '.join(f'{crate} {preload.crate_version(crate)}' for crate in sorted(versions)) or 'no crate'}")
    first = measure_all(commands, {pattern: list(compared) for pattern in commands}, compared, arguments.first_rounds)
    for pattern, results in first.items():
        print_pattern(pattern, commands[pattern], results)
    print_table(first, compared)
    # Not a peer.
    for results in first.values():
        results.pop("secure", None)
    found = measure_all(commands, {pattern: finalists(results) for pattern, results in first.items()}, compared, arguments.rounds)
    for pattern, results in found.items():
        print_pattern(pattern, commands[pattern], results)
    bars = Bars()
    for peer in FASTER_THAN:
        bars.faster_than(found, peer)
    bars.each(found, "CPU time of the best peer's", CPU_BAR, cpu_ratio,
              lambda pattern, results: instructions_ratio(commands[pattern], results, compared))
    bars.each(first, f"memory of the mean of the {MEMORY_PEERS} lowest peers'", MEMORY_BAR, memory_ratio)
    print(f"result: {'; '.join(bars.parts)}")
    return bars.holds
