"""bench_random_mixed with libslipmalloc beside its peers: working sets of 8192, 65536 and 1048576 slots, sizes from the bits that choose the slot
(as in the original) and from others, and 2 and 4 threads with slots of their own and with common ones. `bench/malloc/run mixed`.

All allocators run in turns, the order turned by one in each round. Then those that may be the best peer run beside ours in more rounds, three times as
many but for the largest working set, of which alone is what follows: a ratio is the CPU time of the best peer over ours, the median of the ratios of the
rounds, with the interval that holds it with 95 %, by order. The kernel's share is of the whole process, over all rounds.
"""

import argparse
import os
import statistics
import subprocess
import sys

import preload
import suite

#: Working set, mode, threads, slots; least ratio, most of the CPU time in the kernel (None: no bar).
CASES = {
    "8192": (8192, "mixed", 1, "private", 1.00, 0.03),
    "65536": (65536, "mixed", 1, "private", 1.05, None),
    "1048576": (1048576, "mixed", 1, "private", 1.25, 0.20),
    "8192-decorrelated": (8192, "decorrelated", 1, "private", 1.00, None),
    "65536-decorrelated": (65536, "decorrelated", 1, "private", 1.00, None),
    "1048576-decorrelated": (1048576, "decorrelated", 1, "private", 1.00, None),
    "2-private": (8192, "mixed", 2, "private", 1.00, None),
    "2-shared": (8192, "mixed", 2, "shared", 1.00, None),
    "4-private": (8192, "mixed", 4, "private", 1.00, None),
    "4-shared": (8192, "mixed", 4, "shared", 1.00, None),
}

#: More than any allocator needs for it, by working set.
BACKED_MB = {1048576: 768}
USUAL_BACKED_MB = 128

#: Rounds of these working sets take so little time that there are so many times as many.
TURNS = {8192: 3, 65536: 3}

OURS = suite.OURS


def measure(command, working_set, library):
    """Nanoseconds of CPU per operation, seconds of user, seconds of kernel."""
    preload.back_memory(BACKED_MB.get(working_set, USUAL_BACKED_MB))
    done = subprocess.run(command, env=preload.environment(library), capture_output=True, text=True, timeout=suite.MOST_S)
    if done.returncode != 0:
        raise suite.Left(f"status {done.returncode}: {done.stderr.strip()}")
    return [float(word) for word in done.stdout.split()]


def measure_all(program, cases, allocators, operations, rounds):
    """For each case the measurements of the allocators that it names, in as many rounds as `rounds` says of it. Who fails once is left out of the
    case."""
    found = {case: {name: [] for name in names} for case, names in cases.items()}
    for number in range(max(rounds.values())):
        for case, results in found.items():
            if number >= rounds[case]:
                continue
            working_set, mode, threads, slots = CASES[case][:4]
            command = [program, str(operations // threads), str(working_set), mode, str(threads), slots]
            names = list(cases[case])
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                if name not in results:
                    continue
                try:
                    results[name].append(measure(command, working_set, allocators[name]))
                except (suite.Left, subprocess.TimeoutExpired) as reason:
                    if name == OURS:
                        sys.exit(f"error: {case} with {name}: {reason}")
                    preload.skip(f"{case} with {name}", reason)
                    del results[name]
    return found


def median(rounds):
    return statistics.median(each[0] for each in rounds)


def finalists(results):
    """Those that are measured more often."""
    return suite.rivals({name: median(rounds) for name, rounds in results.items()}) + [OURS]


def share(rounds):
    """Of the kernel in the CPU time of all rounds."""
    user, kernel = (sum(each[part] for each in rounds) for part in (1, 2))
    return kernel / (user + kernel)


def print_rounds(case, results):
    print(f"{case}, {len(results[OURS])} rounds\n{'':>14}{'CPU ns':>9}{'kernel':>9}")
    for name, rounds in results.items():
        print(f"{name:>14}{median(rounds):9.2f}{share(rounds) * 100:7.1f} %", flush=True)


def judge(case, results):
    """What is told at the end, and whether it holds."""
    print_rounds(case, results)
    peers = [name for name in results if name != OURS]
    if not peers:
        return "", True
    best = min(peers, key=lambda name: median(results[name]))
    bar, most_share = CASES[case][4:]
    ours, theirs = ([each[0] for each in results[name]] for name in (OURS, best))
    ratio = suite.ratios(theirs, ours)
    verdict = suite.at_most((1 / ratio[0], 1 / ratio[2], 1 / ratio[1]), 1 / bar)
    part = f"{case} {suite.text(ratio)} of {best} (bar {bar:.2f})" + ("" if verdict == "holds" else f" {verdict}")
    holds = verdict == "holds"
    if most_share is not None:
        kernel = share(results[OURS])
        part += f", kernel {kernel * 100:.1f} % (bar {most_share * 100:.0f} %)" + ("" if kernel < most_share else " does not hold")
        holds = holds and kernel < most_share
    print(part)
    return part, holds


def main(values):
    peers = ["glibc", *preload.PACKAGES, *preload.BUILT]
    parser = argparse.ArgumentParser(prog="run mixed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first-rounds", type=int, default=5, metavar="N", help="with all peers, default 5")
    parser.add_argument("--rounds", type=int, default=40, metavar="N", help="with those that may be the best, default 40, thrice but for 1048576; fewer than 7 tell little")
    parser.add_argument("--operations", type=int, default=10_000_000, metavar="N", help="of all threads together, default 10000000")
    names = [*CASES, *peers]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"may be repeated: {', '.join(names)}")
    arguments = parser.parse_args(values)
    only = set(arguments.only or [])

    cases = [case for case in CASES if case in only] or list(CASES)
    compared = suite.allocators(only.intersection(peers) or peers)
    program = f"{preload.REPOSITORY}/target/alloc/random_mixed"
    os.makedirs(os.path.dirname(program), exist_ok=True)
    subprocess.run(["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-pthread", f"{preload.HERE}/random_mixed.c", "-o", program], check=True)
    all_of_each = {case: list(compared) for case in cases}
    first = measure_all(program, all_of_each, compared, arguments.operations, dict.fromkeys(cases, arguments.first_rounds))
    for case, results in first.items():
        print_rounds(case, results)
    rounds = {case: arguments.rounds * TURNS.get(CASES[case][0], 1) for case in cases}
    found = measure_all(program, {case: finalists(results) for case, results in first.items()}, compared, arguments.operations, rounds)
    told = [judge(case, results) for case, results in found.items()]
    print(f"result: CPU time of the best peer over ours: {'; '.join(part for part, _ in told if part)}")
    return all(holds for _, holds in told)
