"""What measurements on the labs have in common: the labs themselves, the books, the CPU's time."""

import contextlib
import glob
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

from ending import end_by_exception

BOOKS = "target/release/examples/books"
STACK, SYMFONY, DRAGS = "labs/stack/stack", "labs/symfony/symfony", "labs/drags/drags"


class Lab:
    """One of `labs/` in a folder of its own."""

    def __init__(self, program, variable, *options):
        end_by_exception(signal.SIGTERM, signal.SIGHUP)
        self.program, self.folder = program, tempfile.mkdtemp(prefix="slip-bench.", dir="/var/tmp")
        self.environment = {**os.environ, variable: self.folder}
        self.run("install")
        self.run("up", *options)
        shown = self.run("env")
        self.values = dict(word.split("=", 1) for line in shown.splitlines() for word in shlex.split(line.removeprefix("export ")) if "=" in word)

    def run(self, *arguments):
        ran = subprocess.run([self.program, *map(str, arguments)], env=self.environment, stdout=subprocess.PIPE, text=True, check=False)
        if ran.returncode:
            sys.exit(f"error: {self.program} {' '.join(map(str, arguments))} failed")
        return ran.stdout

    def down(self):
        subprocess.run([self.program, "down", "--delete"], env=self.environment, stdout=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


class Stack(Lab):
    def __init__(self, *options):
        super().__init__(STACK, "SLIP_STACK_DIR", *options)

    def load(self, *arguments):
        return subprocess.Popen([STACK, "load", *map(str, arguments)], env=self.environment, stdout=subprocess.PIPE, text=True)


class Books:
    """A process that keeps books of others, when told to."""

    def __init__(self, pids):
        self.process = subprocess.Popen([BOOKS, *map(str, pids)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def tell(self, word):
        print(word, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().strip()
        if not answer:
            sys.exit("error: the books cannot be kept")
        return answer

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def cpu_ns(pids):
    total = 0
    for pid in pids:
        for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
            with contextlib.suppress(OSError), open(path) as line:
                total += int(line.read().split()[0])
    return total


@contextlib.contextmanager
def counting():
    """The kernel counts what programs take; that takes time itself, which it counts as theirs."""
    switch = "/proc/sys/kernel/bpf_stats_enabled"
    with open(switch, "w") as file:
        file.write("1")
    try:
        yield
    finally:
        with open(switch, "w") as file:
            file.write("0")


def programs_ns(pid):
    """What all programs that a process has loaded into the kernel have taken so far, as it is counted."""
    total = 0
    for path in glob.glob(f"/proc/{pid}/fdinfo/*"):
        with contextlib.suppress(OSError), open(path) as lines:
            found = re.search(r"^run_time_ns:\s*(\d+)", lines.read(), re.MULTILINE)
            total += int(found[1]) if found else 0
    return total


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as line:
        return [int(child) for child in line.read().split()]
