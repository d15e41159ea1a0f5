"""Samples targets that are hard to sample, checks each stack against what the target says of itself, and prints what a sample costs.

Run by `hard` with CPython 3.15, and by `python/tests/run` with each version; the target runs on the same interpreter. Its own
RemoteUnwinder takes turns with ours where it has one. Prints `ok NAME: …` or `not ok NAME: …` for each case and ends with the counts.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time

CASES = ("threads", "interpreters", "forks", "execs", "refused-reader", "refused-target")
THREADS = 200
MOVING = 10
INTERPRETERS = 4

# The target.

stacks = {"exact": [], "outer": [], "moving": [], "free": []}
ready = threading.Semaphore(0)
gate = threading.Lock()
gate.acquire()


def stack_of(frame):
    stack = []
    while frame:
        stack.append([frame.f_code.co_qualname, frame.f_lineno])
        frame = frame.f_back
    return stack


def note(kind="exact"):
    """Says where the caller stands: it has to wait in the same line."""
    stacks[kind].append([0, threading.get_native_id(), stack_of(sys._getframe(1))])
    ready.release()


def note_moving(*chains):
    """Says what the caller may be seen in: itself, and what it calls in the same line, the innermost last."""
    own = [name for name, _ in stack_of(sys._getframe(1))]
    legal = [own] + [list(reversed(chain)) + own for chain in chains]
    stacks["moving"].append([0, threading.get_native_id(), legal])
    ready.release()


class Service:
    """Threads of a service: most wait, at different depths, and some work and wait in turns."""

    def wait(self, depth):
        if depth:
            self.wait(depth - 1)
        else:
            note() or gate.acquire()

    def serve(self):
        note_moving(["Service.compute"], ["Service.compute", "Service.add"], ["Service.rest"])
        while True:
            self.compute()
            self.rest()

    def compute(self):
        total = 0
        for number in range(300):
            total = self.add(total, number)

    def add(self, left, right):
        return left + right

    def rest(self):
        time.sleep(0.005)


INSIDE = """
import json, os, sys, threading

def note():
    frame, stack = sys._getframe(1), []
    while frame:
        stack.append([frame.f_code.co_qualname, frame.f_lineno])
        frame = frame.f_back
    os.write({out}, (json.dumps([{number}, threading.get_native_id(), stack]) + "\\n").encode())

def hold(depth):
    if depth:
        hold(depth - 1)
    else:
        note() or os.read({gate}, 1)

hold({number})
"""


def start_interpreters():
    from concurrent import interpreters

    says, out = os.pipe()
    closed, _ = os.pipe()
    for _ in range(INTERPRETERS):
        interpreter = interpreters.create()
        code = INSIDE.format(out=out, gate=closed, number=interpreter.id)

        def enter(interpreter=interpreter, code=code):
            note("outer") or interpreter.exec(code)

        threading.Thread(target=enter, daemon=True).start()
    with open(says) as lines:
        for _ in range(INTERPRETERS):
            ready.acquire()
            stacks["exact"].append(json.loads(lines.readline()))


def churn():
    note_moving(["forked"], ["executed"])
    while True:
        forked()
        executed()


def forked():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def executed():
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def be_target(case):
    noted = 0
    if case == "execs":
        if len(sys.argv) == 3:
            print(json.dumps(stacks), flush=True)
        time.sleep(0.005)
        os.execv(sys.executable, [sys.executable, *sys.argv[:3], "again"])
    if case == "refused-target":
        from compare import refuse_perf_event_open

        refuse_perf_event_open()
    if case in ("threads", "refused-reader", "refused-target"):
        service = Service()
        for number in range(THREADS - MOVING):
            threading.Thread(target=service.wait, args=(number % 20,), daemon=True).start()
        for _ in range(MOVING):
            threading.Thread(target=service.serve, daemon=True).start()
        noted = THREADS
    elif case == "interpreters":
        start_interpreters()
    elif case == "forks":
        threading.Thread(target=Service().wait, args=(5,), daemon=True).start()
        noted = 1

    def publish():
        # The main thread's, too.
        for _ in range(noted + 1):
            ready.acquire()
        stacks["free"].append(threading.get_native_id())
        print(json.dumps(stacks), flush=True)
        gate.acquire()

    threading.Thread(target=publish, daemon=True).start()
    if case == "forks":
        churn()
    note() or gate.acquire()


# The reader.


class Wrong(Exception):
    """A stack that the target cannot have had."""


def check(sample, report):
    """Holds a sample against the report; the number of threads seen."""
    seen = {}
    for interpreter in sample:
        for thread in interpreter.threads:
            key = (interpreter.interpreter_id, thread.thread_id)
            if key in seen:
                raise Wrong(f"{key} twice")
            seen[key] = thread.frame_info
    count = len(seen)
    for interpreter, tid, expected in report["exact"] + report["outer"]:
        frames = seen.pop((interpreter, tid), None)
        if frames is None:
            raise Wrong(f"no thread {tid} of interpreter {interpreter}")
        found = [[frame.funcname, frame.location.lineno] for frame in frames]
        if [interpreter, tid, expected] in report["outer"]:
            found = found[-len(expected) :]
        if found != expected:
            raise Wrong(f"{found}, not {expected}")
    for interpreter, tid, legal in report["moving"]:
        frames = seen.pop((interpreter, tid), None)
        if frames is None:
            raise Wrong(f"no thread {tid} of interpreter {interpreter}")
        if [frame.funcname for frame in frames] not in legal:
            raise Wrong(f"{[frame.funcname for frame in frames]}")
    left = {tid for _, tid in seen} - set(report["free"])
    if left:
        raise Wrong(f"unknown threads {left}")
    return count


def is_nameless(frame):
    """Whether it is said that its name cannot be read: its program has become another one meanwhile."""
    return frame.location is None and frame.funcname in ("<unreadable>", "<unknown function>")


def check_names(sample):
    """Of a program that begins anew all the time: names are names, and files are there. Whether some are said to be unreadable."""
    nameless = False
    for interpreter in sample:
        for thread in interpreter.threads:
            for frame in thread.frame_info:
                if is_nameless(frame):
                    nameless = True
                    continue
                is_name = re.fullmatch(r"[\w.<>]+", frame.funcname)
                if not is_name or not (frame.filename.startswith("<") or os.path.exists(frame.filename)):
                    raise Wrong(f"{frame}")
    return nameless


def check_children(unwinder_of, pid, report):
    """Children that are about to end or to become another program: their stack is their parent's, as far as it has names, or an error."""
    import slipstream

    ((_, _, legal),) = report["moving"]
    for child in slipstream.get_child_pids(pid):
        try:
            sample = unwinder_of(child).get_stack_trace()
        except (RuntimeError, OSError):
            continue
        for interpreter in sample:
            for thread in interpreter.threads:
                frames = thread.frame_info[-len(legal[0]) :]
                right = [is_nameless(frame) or frame.funcname == name for frame, name in zip(frames, legal[0])]
                if len(frames) != len(legal[0]) or not all(right):
                    raise Wrong(f"child: {thread}")


class Reader:
    """One kind of unwinder on one target."""

    def __init__(self, kind, pid):
        self.kind, self.pid, self.unwinder = kind, pid, None
        self.cpu, self.samples, self.dropped, self.nameless, self.wrong = 0.0, 0, 0, 0, 0
        self.threads, self.example = 0, ""

    def look(self):
        if self.unwinder is None:
            self.unwinder = self.kind(self.pid, all_threads=True, cache_frames=True)
        began = time.thread_time()
        try:
            return self.unwinder.get_stack_trace()
        finally:
            self.cpu += time.thread_time() - began

    def sample(self, case, report):
        self.samples += 1
        try:
            sample = self.look()
        except (RuntimeError, OSError):
            self.dropped += 1
            # The next one attaches anew.
            if case == "execs":
                self.unwinder = None
            return
        try:
            if case == "execs":
                self.nameless += check_names(sample)
            else:
                self.threads = max(self.threads, check(sample, report))
            if case == "forks" and self.samples % 20 == 0:
                check_children(self.kind, self.pid, report)
        except Wrong as wrong:
            self.wrong += 1
            self.example = self.example or str(wrong)

    def says(self, name):
        cost = self.cpu / self.samples * 1e6
        nameless = f"{self.nameless} with unreadable names, " if self.nameless else ""
        return (
            f"{name} {cost:.1f} us of CPU a sample, {self.samples} samples, {self.dropped / self.samples:.1%} dropped, "
            f"{nameless}{self.wrong} wrong"
        )


def run_case(case, seconds, rate_hz):
    import slipstream

    kinds = {"ours": slipstream.RemoteUnwinder}
    if sys.version_info >= (3, 15):
        import _remote_debugging

        kinds["stock"] = _remote_debugging.RemoteUnwinder
    target = subprocess.Popen(
        [sys.executable, "-W", "ignore", __file__, "--target", case], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    report = json.loads(target.stdout.readline())
    if case == "refused-reader":
        from compare import refuse_perf_event_open

        refuse_perf_event_open()
    readers = {name: Reader(kind, target.pid) for name, kind in kinds.items()}
    try:
        for nth in range(4):
            for name in sorted(readers, reverse=nth % 2 == 1):
                end = time.monotonic() + seconds / 4
                while time.monotonic() < end:
                    readers[name].sample(case, report)
                    time.sleep(1 / rate_hz)
    finally:
        target.kill()
        target.wait()
    ours = readers["ours"]
    text = "; ".join(reader.says(name) for name, reader in readers.items())
    if ours.threads:
        text = f"{ours.threads} threads, {text}"
    is_right = ours.wrong == 0 and ours.dropped < ours.samples
    print(f"{'ok' if is_right else 'not ok'} {case}: {text}" + (f"; {ours.example}" if ours.wrong else ""), flush=True)
    for name, reader in readers.items():
        if name != "ours" and reader.wrong:
            print(f"   {name}: {reader.example[:300]}")
    return is_right


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=8.0, help="of each unwinder on each case")
    options.add_argument("--rate", type=float, default=500.0)
    options.add_argument("--cases", nargs="*", choices=CASES)
    options.add_argument("--one", choices=CASES, help=argparse.SUPPRESS)
    options = options.parse_args()
    if options.one:
        return 0 if run_case(options.one, options.seconds, options.rate) else 1
    passed = failed = skipped = 0
    costs = []
    for case in options.cases or CASES:
        if case == "interpreters" and sys.version_info < (3, 14):
            print(f"skipped: {case}: CPython 3.14 brought concurrent.interpreters")
            skipped += 1
            continue
        # Each by itself: what the kernel has once refused it refuses for ever.
        again = [sys.executable, __file__, "--one", case, "--seconds", str(options.seconds), "--rate", str(options.rate)]
        done = subprocess.run(again, stdout=subprocess.PIPE, text=True)
        print(done.stdout, end="", flush=True)
        costs.append(f"{case} " + " / ".join(re.findall(r"\S+(?= us of CPU)", done.stdout)))
        if done.returncode:
            failed += 1
        else:
            passed += 1
    counts = f"{passed} passed, {failed} failed, {skipped} skipped"
    print(f"result: us of CPU a sample, ours / stock: {', '.join(costs)}; {counts}")
    print(counts)
    return failed > 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--target"]:
        be_target(sys.argv[2])
    else:
        sys.exit(main())
