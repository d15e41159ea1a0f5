"""What stacks of native code cost eight workers of PHP-FPM: CPU per request with the sampler, without it, and with native stacks, in turns, each
with waits and without them.

All workers are idle at the borders of a slice, so CPU time divides by requests exactly. In each round each variant has as many slices of the
same requests, in an order by chance; a round gives one ratio. Afterwards the kernel itself counts how long its program runs at each look.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from interval import middle, text  # noqa: E402
from lab import counting, cpu_ns, programs_ns  # noqa: E402
from load import Load  # noqa: E402

#: Most of the workers' CPU that native stacks may take at 99 Hz, per cent.
BAR = 2.0
HZ = 99

#: Pages of the lab that are asked for in turn, requests of a slice, slices of a variant in a round, and slices before them that warm it up.
PATHS = ["/lab/cpu.php", "/?p=5", "/lab/deep.php", "/lab/db.php"]
REQUESTS, SLICES, WARM = 16, 6, 4

#: What the sampler does: it samples who has a CPU, and counts waits as well but for `cpu`; with native stacks or without.
VARIANTS = ("none", "cpu", "native-cpu", "plain", "native")

#: What is compared with what.
PAIRS = (("cpu", "none"), ("native-cpu", "none"), ("native-cpu", "cpu"), ("plain", "none"), ("native", "none"), ("native", "plain"))

#: Slices of each variant in which the kernel counts.
COUNTED = 48


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


def shares_of_programs(sampler, variants, workers, load, draw):
    """Per cent of the workers' CPU that the sampler's programs take by the kernel's count, for each variant, slice by slice. Programs run
    in who happens to have the CPU, the workers or others; all of it counts as if it were the workers'."""
    found = {variant: [] for variant in variants}
    with counting():
        for _ in range(COUNTED):
            for variant in draw.sample(variants, len(variants)):
                sampler.turn(variant)
                load.slice()
                taken, used = programs_ns(sampler.process.pid), cpu_ns(workers)
                load.slice()
                taken, used = programs_ns(sampler.process.pid) - taken, cpu_ns(workers) - used
                sampler.turn("none")
                found[variant].append(100 * taken / (used - taken))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--workers", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--seconds", type=float, default=300)
    options = parser.parse_args()
    workers = [int(pid) for pid in options.workers.split()]
    load, sampler, draw = Load(options.url, len(workers), REQUESTS, PATHS), Sampler(options.program, workers), random.Random(2)
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
    extra = {(more, than): middle([(used[more] / used[than] - 1) * 100 for used in rounds]) for more, than in PAIRS}
    shares = shares_of_programs(sampler, VARIANTS[1:], workers, load, draw)
    print(f"{len(rounds)} rounds of {SLICES * REQUESTS} requests, {statistics.median(r['none'] for r in rounds) / 1e6:.1f} ms of CPU each alone")
    for (more, than), value in extra.items():
        print(f"workers' CPU per request, {more} beside {than}: {text(value)} %")
    added = middle([one - other for one, other in zip(shares["native"], shares["plain"])])
    shares = {variant: middle(values) for variant, values in shares.items()}
    for variant, value in shares.items():
        print(f"{variant}: programs take {text(value)} % of the workers' CPU, we {statistics.median(own[variant]):.2f} % of a core")
    print(f"{answer['samples']} samples, {answer['lost']} failed")
    print(
        f"result: at {HZ} Hz programs take {text(shares['native-cpu'])} % of the workers' CPU with native stacks (bar {BAR:.0f}), {text(shares['cpu'])} without; "
        f"beside waits, which take {text(shares['plain'])}, native stacks take {text(added)} (bar {BAR:.0f}); {COUNTED} slices of each; "
        f"CPU per request, all in all: {text(extra['native-cpu', 'none'])} and {text(extra['cpu', 'none'])} % more, "
        f"with waits {text(extra['native', 'none'])} and {text(extra['plain', 'none'])}; {len(rounds)} rounds"
    )
    return 0 if max(shares["native-cpu"][2], added[2]) <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
