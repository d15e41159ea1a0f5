"""CPU of `slip top` from schedstat, and its picture on tmux, frame by frame."""

import argparse
import glob
import os
import re
import statistics
import subprocess
import sys
import time

#: Bar: our CPU in per cent of one core.
CPU_BAR = 1.0

LARGE, SMALL = (200, 50), (60, 12)


class Terminal:
    """A server of tmux with one terminal."""

    def __init__(self, size, command):
        self.name = f"slip-bench-{os.getpid()}"
        self.tell("new-session", "-d", "-x", size[0], "-y", size[1], command, ";", "set", "-g", "status", "off")

    def tell(self, *words):
        command = ["tmux", "-u", "-L", self.name, "-f", "/dev/null", *map(str, words)]
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        environment.pop("TMUX", None)
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    def frame(self):
        return self.tell("capture-pane", "-p").splitlines()

    def wait(self, holds):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            frame = self.frame()
            if holds(frame):
                return frame
        sys.exit("error: waited in vain; the terminal shows:\n" + "\n".join(self.frame()))

    def child(self):
        shell = self.tell("display-message", "-p", "#{pane_pid}").strip()
        with open(f"/proc/{shell}/task/{shell}/children", encoding="ascii") as file:
            return int(file.read().split()[0])

    def close(self):
        self.tell("kill-server")


def cpu_ns(pid):
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with open(path, encoding="ascii") as line:
            total += int(line.read().split()[0])
    return total


def shares(rows, column):
    """The numbers of one column of per cents."""
    found = (re.findall(r"(\d+\.\d) %", row) for row in rows)
    return [float(numbers[column]) for numbers in found if len(numbers) > column]


def is_whole(frame, size):
    """Whether this is a picture with all of its parts, whose rows are in their order: one that is half drawn has rows of two pictures."""
    if len(frame) != size[1] or not frame[-1].startswith("q quit"):
        return False
    if size == SMALL:
        return "of 8 busy" in frame[0] and "STATE" in frame[2]
    heads = [at for at, row in enumerate(frame) if "STATE" in row or "OWN TIME" in row]
    if len(heads) != 2 or not frame[0].startswith("slip top"):
        return False
    workers, functions = frame[heads[0] + 1 : heads[1] - 2], frame[heads[1] + 1 : -1]
    orders = [shares(workers, 0), shares(functions, 0)]
    return len(orders[0]) == 8 and all(order == sorted(order, reverse=True) for order in orders)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--slip", required=True)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--flicker-seconds", type=float, default=5)
    parser.add_argument("--sampler", default="outside")
    options = parser.parse_args()
    seconds = options.seconds + options.flicker_seconds + 30
    load = ["labs/stack/stack", "load", "--target", "wordpress", "--rate", "0", "--concurrency", "8", "--seconds", str(seconds)]
    load = subprocess.Popen(load, stdout=subprocess.PIPE, text=True)
    terminal = Terminal(LARGE, f"{options.slip} top --fpm {options.pool} --sampler {options.sampler}; exec sleep 1000")
    try:
        # It has learned what functions are called by then.
        terminal.wait(lambda frame: is_whole(frame, LARGE))
        time.sleep(5)
        pid = terminal.child()
        before, begin = cpu_ns(pid), time.monotonic()
        time.sleep(options.seconds)
        share = 100 * (cpu_ns(pid) - before) / 1e9 / (time.monotonic() - begin)
        busy = terminal.frame()[0]
        frames, end = [], time.monotonic() + options.flicker_seconds
        while time.monotonic() < end:
            frames.append(terminal.frame())
        broken = [frame for frame in frames if not is_whole(frame, LARGE)]
        if broken:
            print("\n".join(broken[0]), file=sys.stderr)
        resized = []
        for size in [SMALL, LARGE] * 5:
            # tmux tells programs of a size late that comes soon after another.
            time.sleep(1)
            terminal.tell("resize-window", "-x", size[0], "-y", size[1])
            begin = time.monotonic()
            terminal.wait(lambda frame, size=size: is_whole(frame, size))
            resized.append(1e3 * (time.monotonic() - begin))
    finally:
        terminal.close()
        load.terminate()
        load.wait()
    different = len({tuple(frame) for frame in frames})
    holds = share <= CPU_BAR and not broken
    print(f"while measured: {busy}")
    print(
        f"result: CPU {share:.2f} % of a core over {options.seconds:.0f} s (bar {CPU_BAR} %); "
        f"{len(broken)} of {len(frames)} frames in {options.flicker_seconds:.0f} s blank or half drawn, {different} different ones (bar 0); "
        f"after another size the whole picture within {max(resized):.0f} ms, median {statistics.median(resized):.0f}"
    )
    sys.exit(0 if holds else 1)


main()
