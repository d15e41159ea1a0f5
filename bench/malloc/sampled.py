"""What it costs a program to be recorded by `slip record --alloc`. `bench/malloc/run sampled`.

A program of Python that does nothing but take and free blocks, its memory libslipmalloc's, is recorded and not, in turns: CPU time of its own for a
block. Blocks are small ones of 100 bytes and larger ones of 3,000; what stands for 512 KiB of them is told, so the cost is by bytes.
"""

import argparse
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import preload

sys.path.insert(0, f"{preload.REPOSITORY}/bench/lib")
from interval import middle, text  # noqa: E402

SLIP = os.environ.get("SLIP", f"{preload.REPOSITORY}/target/release/slip")

#: Bytes that a block is asked for, and blocks of a slice.
BLOCKS = {"100 bytes": (100, 400_000), "3,000 bytes": (3_000, 200_000)}

#: Takes so many blocks of so many bytes, and says how long that took it; each takes the place of one of a hundred.
PROGRAM = """
import sys, time
def takes(count, size):
    held = [None] * 100
    for i in range(count):
        held[i % 100] = bytearray(size)
for line in sys.stdin:
    count, size = map(int, line.split())
    begin = time.process_time_ns()
    takes(count, size)
    print(time.process_time_ns() - begin, flush=True)
"""


class Program:
    def __init__(self, library):
        environment = dict(preload.environment(library), PYTHONMALLOC="malloc")
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def slice(self, count, size):
        """CPU time of a block, ns."""
        self.process.stdin.write(f"{count} {size}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline()) / count


class Recorder:
    """Listens from when it is made until it is stopped."""

    def __init__(self, pid, library, file):
        command = [SLIP, "record", "--alloc", "--pid", str(pid), "-o", file, "--force"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        at = semaphore(pid, library)
        while not listeners(pid, at):
            if self.process.poll() is not None:
                sys.exit(f"error: it is not recorded: {self.process.stderr.read()}")
            time.sleep(0.01)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()


def semaphore(pid, library):
    """Where the library's count of who listens is in a process."""
    symbols = subprocess.run(["nm", "-D", library], capture_output=True, check=True, text=True).stdout
    offset = int(re.search(r"^(\w+) . slipmalloc_sampling$", symbols, re.M)[1], 16)
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        return offset + min(int(line.split("-")[0], 16) for line in maps if os.path.basename(library) in line)


def listeners(pid, at):
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(at)
        return int.from_bytes(memory.read(2), "little")


def shares(words):
    """`bench/malloc/run shares`: the tests that compare what is told with what was allocated."""
    argparse.ArgumentParser(prog="bench/malloc/run shares", description=shares.__doc__).parse_args(words)
    command = ["cargo", "test", "-q", "--locked", "-p", "slip-cli", "--test", "slip", "allocations"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=preload.REPOSITORY)
    counts = re.search(r"^test result: \w+\. (\d+) passed; (\d+) failed", done.stdout, re.M)
    if not counts:
        sys.exit(f"error: the tests did not run: {done.stderr[-2000:]}")
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    print(f"result: {counts[1]} passed, {counts[2]} failed")
    return done.returncode == 0


def main(words):
    parser = argparse.ArgumentParser(prog="bench/malloc/run sampled", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, metavar="N", help="default 40")
    arguments = parser.parse_args(words)
    subprocess.run(["cargo", "build", "-q", "--release", "--locked", "-p", "slip-cli"], check=True, cwd=preload.REPOSITORY)
    library, _ = preload.ours()
    draw, found, alone = random.Random(1), {name: [] for name in BLOCKS}, {name: [] for name in BLOCKS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds):
            # A program of its own for each round, so that what one has left in its memory is none of the next one's.
            program = Program(library)
            for size, count in BLOCKS.values():
                program.slice(count, size)
            is_first = draw.random() < 0.5
            if is_first:
                plain = {name: program.slice(count, size) for name, (size, count) in BLOCKS.items()}
            recorder = Recorder(program.process.pid, library, f"{folder}/a.slip")
            recorded = {name: program.slice(count, size) for name, (size, count) in BLOCKS.items()}
            recorder.stop()
            if not is_first:
                plain = {name: program.slice(count, size) for name, (size, count) in BLOCKS.items()}
            program.process.stdin.close()
            program.process.wait()
            for name in BLOCKS:
                found[name].append(100 * (recorded[name] / plain[name] - 1))
                alone[name].append(plain[name])
    parts = [f"blocks of {name}: {text(middle(found[name]))} % more CPU than {statistics.median(alone[name]):.0f} ns" for name in BLOCKS]
    print(f"result: {'; '.join(parts)}; {arguments.rounds} rounds")
    return True
