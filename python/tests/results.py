"""Results are the caller's: what it keeps stays as it is, and what it changes in one is in no other. Those that it drops come again."""

import gc
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen

import slipstream

PROGRAM = """
import asyncio, sys, threading

def read(depth):
    return read(depth - 1) if depth else sys.stdin.readline()

async def sleeps():
    await asyncio.sleep(1_000)

async def on(task):
    await task

async def main():
    tasks, threads, depth = [], [], 0
    while True:
        print(flush=True)
        depth, n_tasks, n_threads = map(int, read(depth).split())
        while len(tasks) < n_tasks:
            number = len(tasks)
            tasks.append(asyncio.create_task(on(tasks[-1]) if number % 2 else sleeps(), name=f"t{number}"))
        ended = tasks[n_tasks:]
        del tasks[n_tasks:]
        for task in reversed(ended):
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        await asyncio.sleep(0.01)
        while len(threads) < n_threads:
            stop = threading.Event()
            threads.append((threading.Thread(target=stop.wait, daemon=True), stop))
            threads[-1][0].start()
        while len(threads) > n_threads:
            thread, stop = threads.pop()
            stop.set()
            thread.join()

asyncio.run(main())
"""
HAS_TASKS = sys.version_info >= (3, 14)


class Target:
    def __init__(self):
        self.process = Popen([sys.executable, "-c", PROGRAM], stdin=PIPE, stdout=PIPE, text=True)
        self.process.stdout.readline()

    def become(self, depth, tasks, threads):
        """It stands still when this returns: none of its threads runs, so none has anything to wait for but us."""
        print(depth, tasks, threads, file=self.process.stdin, flush=True)
        self.process.stdout.readline()
        end = time.monotonic() + 10
        while any(state != "S" for state in self.states()):
            assert time.monotonic() < end, "the target does not stand still"

    def states(self):
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            # `join` is over before the kernel's thread is, which may end while we look.
            with suppress(FileNotFoundError, ProcessLookupError):
                yield (task / "stat").read_text().rsplit(")", 1)[1].split()[0]


def parts(value):
    """All lists and structures in it that no other result may have; frames are shared."""
    if isinstance(value, (list, tuple)) and not isinstance(value, slipstream.FrameInfo):
        yield value
        for item in value:
            yield from parts(item)


def ids(value):
    return {id(part) for part in parts(value)}


def are_kept(get, expected):
    kept = [get() for _ in range(40)]
    assert all(repr(result) == expected for result in kept)
    seen = set()
    for result in kept:
        assert not seen & ids(result), "two results share a part"
        seen |= ids(result)


def come_again(get):
    def one():
        nonlocal result
        result = get()
        of_result = ids(result)
        # These would take the place of what was freed.
        others.append([[[], ()] for _ in range(1_000)])
        return of_result

    result, others = None, []
    first, second, third, fourth = one(), one(), one(), one()
    assert first == third and second == fourth and not first & second
    # One more than any other list that one variable holds.
    assert sys.getrefcount(result) == sys.getrefcount(others) + 1


def replace(of):
    of[0] = None


def replace_by_equal(of):
    of[0] = type(of[0])(of[0])


CHANGES = {
    "append": lambda of: of.append(None),
    "pop": lambda of: of.pop(),
    "clear": lambda of: of.clear(),
    "item": replace,
    "equal item": replace_by_equal,
    "repeat": lambda of: of.append(of[0]),
    "twice the same": lambda of: of.__setitem__(slice(None), [of[-1]] * len(of)),
}


def lists(value):
    return [part for part in parts(value) if isinstance(part, list)]


def are_changed(get, expected):
    for change in CHANGES.values():
        for nth in range(len(lists(get()))):
            of = lists(get())[nth]
            if of:
                change(of)
            del of
            # The same way, but kept for one call.
            of = lists(get())[nth]
            if of:
                change(of)
            for _ in range(3):
                assert repr(get()) == expected, (nth, expected)
            del of
            for _ in range(3):
                assert repr(get()) == expected, (nth, expected)


def are_kept_in_part(get, expected):
    for nth in range(len(list(parts(get())))):
        part = list(parts(get()))[nth]
        text = repr(part)
        for _ in range(4):
            result = get()
            assert not ids(part) & ids(result), (nth, part)
            assert repr(result) == expected
        assert repr(part) == text
        for of in lists(part):
            of.append(None)
        for _ in range(4):
            assert repr(get()) == expected
    get(), get()
    held = gc.get_objects()
    assert not {id(one) for one in held} & ids(get())


class Marker:
    def __init__(self, *holds):
        self.holds = holds


class Calls:
    """Calls from its finalizer, and from another thread meanwhile."""

    def __init__(self, get):
        self.get = get

    def __del__(self):
        thread = threading.Thread(target=self.get)
        thread.start()
        thread.join()
        done.append(self.get())


done = []


def are_freed(pid, name):
    unwinder = slipstream.RemoteUnwinder(pid, all_threads=True)
    get = getattr(unwinder, name)
    for _ in range(4):
        get()
    # Dropped by a call, in which the finalizer calls again.
    for of in lists(get()):
        of.append(Calls(get))
    n = len(lists(get()))
    del of
    for _ in range(4):
        get()
    assert len(done) >= n, (len(done), n)
    done.clear()
    # In a circle.
    result = get()
    marker = Marker(unwinder, get)
    lists(result)[-1].append(marker)
    marker = weakref.ref(marker)
    del result, unwinder, get
    gc.collect()
    assert marker() is None, "the unwinder is not collected"
    # With the unwinder.
    unwinder = slipstream.RemoteUnwinder(pid, all_threads=True)
    for _ in range(2):
        result = getattr(unwinder, name)()
        marker = Marker()
        result.append(marker)
        marker = weakref.ref(marker)
        del result
    del unwinder
    assert marker() is None, "the unwinder keeps results"


def come_again_after_all(get, _):
    """For a caller that has kept many and keeps no more."""
    kept = [get() for _ in range(100)]
    del kept
    for _ in range(1_200):
        get()
    come_again(get)


def follow(target, unwinder):
    """Shapes of the target: depth of its stack, tasks, and threads besides the main one. Tasks end in pairs: one ends what it waits for."""
    kept = []
    shapes = [(0, 0, 0), (1, 2, 1), (2, 2, 1), (2, 4, 2), (2, 4, 1), (5, 2, 1), (1, 8, 3), (150, 8, 0), (0, 40, 0)]
    for depth, tasks, threads in [*shapes, *reversed(shapes)]:
        target.become(depth, tasks, threads)
        for turn in range(5):
            results = [unwinder.get_stack_trace()]
            assert seen_stacks(results[0]) == (depth, threads), (depth, threads, results)
            if HAS_TASKS:
                results.append(unwinder.get_all_awaited_by())
                assert seen_tasks(results[1]) == tasks, (tasks, results)
            if turn == 3:
                kept += [(result, repr(result)) for result in results]
    assert all(repr(result) == text for result, text in kept)


def seen_stacks(result):
    (interpreter,) = result
    names = [[frame.funcname for frame in thread.frame_info] for thread in interpreter.threads]
    (main,) = (of for of in names if "read" in of)
    return main.count("read") - 1, len(names) - 1


def seen_tasks(result):
    tasks = [task for entry in result for task in entry.awaited_by]
    names = {task.task_id: task.task_name for task in tasks}
    for task in tasks:
        (coroutine,) = task.coroutine_stack
        name, frames = task.task_name, [frame.funcname for frame in coroutine.call_stack]
        if name.startswith("t"):
            number = int(name[1:])
            assert frames == (["on"] if number % 2 else ["sleep", "sleeps"]), (name, frames)
            waiters = [names[waiter.task_name] for waiter in task.awaited_by]
            assert not waiters or number % 2 == 0 and waiters == [f"t{number + 1}"], (name, waiters)
    return sum(name.startswith("t") for name in names.values())


target = Target()
try:
    pid = target.process.pid
    target.become(3, 4, 2)
    names = ["get_stack_trace"] + ["get_all_awaited_by", "get_async_stack_trace"] * HAS_TASKS
    for name in names:
        expected = repr(getattr(slipstream.RemoteUnwinder(pid, all_threads=True), name)())
        # Who runs a task does not stand still: those results are made anew each time.
        comes_again = name != "get_async_stack_trace"
        for test in (are_changed, are_kept_in_part, are_kept, come_again_after_all)[: 4 if comes_again else 3]:
            get = getattr(slipstream.RemoteUnwinder(pid, all_threads=True), name)
            if comes_again:
                come_again(get)
            test(get, expected)
        are_freed(pid, name)
    follow(target, slipstream.RemoteUnwinder(pid, all_threads=True))
finally:
    target.process.kill()
    target.process.wait()
