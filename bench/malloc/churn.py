"""The memory of a program that grows and shrinks (`churn.c`), with libslipmalloc and its peers. `bench/malloc/run churn`.

After each phase the program serves for four seconds, in which an allocator may give back what is free. What is told is what is resident then, the
median of the rounds. Of the phases 2, 6 and 8 the survivors were taken one after the other. Writes a picture of the last round.
"""

import argparse
import os
import statistics
import subprocess

import preload
import suite

#: What happened before the program served.
PHASES = {
    1: "grew to 192 MiB",
    2: "the last eighth stays",
    3: "all went; grew to 64 MiB",
    4: "a quarter stays, scattered",
    5: "grew to 64 MiB with larger blocks",
    6: "the first half stays",
    7: "grew to 192 MiB again",
    8: "the last eighth stays again",
}
#: Whose survivors were taken one after the other, those of phase 8 but for what phase 4 left of holes.
CONTIGUOUS = (2, 8)

#: Most memory for that of the best peer, and for what lives where survivors are contiguous.
PEER_BAR, LIVE_BAR = 1.05, 1.15

#: Of whom the picture has curves, with their colours.
CURVES = {"live": "#888", "glibc": "#c33", "mimalloc2": "#d90", suite.OURS: "#06c"}

BACKED_MB = 512


def measure(program, library):
    """Lines of milliseconds, phase, kB that live and resident kB."""
    preload.back_memory(BACKED_MB)
    done = subprocess.run([program], env=preload.environment(library), capture_output=True, text=True, timeout=suite.MOST_S, check=True)
    return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]


def at_end(lines, phase):
    """kB that live and resident kB at the end of a phase."""
    return [line[2:] for line in lines if line[1] == phase][-1]


def picture(curves):
    """An SVG of resident memory over time."""
    width, height, left, bottom = 900, 360, 50, 30
    last = max(points[-1][0] for points in curves.values())
    most = max(value for points in curves.values() for _, value in points)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for megabytes in range(0, int(most / 1024) + 1, 50):
        y = height - bottom - megabytes * 1024 / most * (height - 2 * bottom)
        parts.append(f'<path d="M{left} {y:.1f}H{width - 10}" stroke="#ddd"/><text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{megabytes}</text>')
    for second in range(0, last // 1000 + 1, 5):
        x = left + second * 1000 / last * (width - left - 10)
        parts.append(f'<text x="{x:.1f}" y="{height - 10}" text-anchor="middle">{second} s</text>')
    parts.append(f'<text x="{left}" y="18">resident MB</text>')
    for number, (name, points) in enumerate(curves.items()):
        line = " ".join(f"{left + at / last * (width - left - 10):.1f},{height - bottom - kb / most * (height - 2 * bottom):.1f}" for at, kb in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{CURVES[name]}" stroke-width="1.5"/>')
        parts.append(f'<text x="{left + 110 + number * 110}" y="18" fill="{CURVES[name]}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def draw(path, rounds):
    curves = {"live": [(line[0], line[2]) for line in rounds[suite.OURS]]}
    curves |= {name: [(line[0], line[3]) for line in rounds[name]] for name in CURVES if name in rounds}
    with open(path, "w") as file:
        file.write(picture(curves))
    print(f"picture: {path}")


def main(values):
    peers = ["glibc", *preload.PACKAGES, *preload.BUILT]
    parser = argparse.ArgumentParser(prog="run churn", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default 3; one is half a minute for each allocator")
    parser.add_argument("--only", action="append", choices=peers, metavar="NAME", help=f"may be repeated: {', '.join(peers)}")
    parser.add_argument("--picture", metavar="PATH", help="default target/alloc/churn.svg")
    arguments = parser.parse_args(values)
    compared = suite.allocators(set(arguments.only or peers))
    folder = f"{preload.REPOSITORY}/target/alloc"
    subprocess.run(["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-D_GNU_SOURCE", f"{preload.HERE}/churn.c", "-o", f"{folder}/churn"], check=True)

    found = {name: [] for name in compared}
    names = list(compared)
    for number in range(arguments.rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            found[name].append(measure(f"{folder}/churn", compared[name]))
    ends = {name: {phase: [at_end(lines, phase) for lines in rounds] for phase in PHASES} for name, rounds in found.items()}
    resident = {name: {phase: statistics.median(end[1] for end in each) for phase, each in phases.items()} for name, phases in ends.items()}
    live = {phase: statistics.median(end[0] for end in each) for phase, each in ends[suite.OURS].items()}

    print(f"resident MB at the end of each phase, median of {arguments.rounds} rounds")
    print(f"{'':>34}{'live':>8}" + "".join(f"{name:>14}" for name in names))
    parts, holds = [], True
    for phase, what in PHASES.items():
        print(f"{what:>34}{live[phase] / 1024:8.1f}" + "".join(f"{resident[name][phase] / 1024:14.1f}" for name in names), flush=True)
        ours, others = resident[suite.OURS][phase], {name: resident[name][phase] for name in names if name != suite.OURS}
        if others:
            best = min(others, key=others.get)
            is_held = ours <= PEER_BAR * others[best]
            parts.append(f"{what}: {ours / others[best]:.2f} of {best}{'' if is_held else ' does not hold'}")
            holds = holds and is_held
        if phase in CONTIGUOUS:
            is_held = ours <= LIVE_BAR * live[phase]
            parts.append(f"{ours / live[phase]:.2f} of what lives (bar {LIVE_BAR}){'' if is_held else ' does not hold'}")
            holds = holds and is_held
    draw(arguments.picture or f"{folder}/churn.svg", {name: rounds[-1] for name, rounds in found.items()})
    print(f"result: resident memory after each phase, ours of the best peer's (bar {PEER_BAR}): {'; '.join(parts)}")
    return holds
