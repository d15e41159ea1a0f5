"""Whether the module has what CPython 3.15's own has, and does the same with what is wrong; elsewhere whether it has it at all."""

import inspect
import os
import subprocess
import sys

import slipstream

# Fields of the types of results.
FIELDS = {
    "AwaitedInfo": "thread_id awaited_by",
    "CoroInfo": "call_stack task_name",
    "FrameInfo": "filename location funcname opcode",
    "GCStatsInfo": "gen iid ts_start ts_stop collections collected uncollectable candidates heap_size duration",
    "InterpreterInfo": "interpreter_id threads",
    "LocationInfo": "lineno end_lineno col_offset end_col_offset",
    "TaskInfo": "task_id task_name coroutine_stack awaited_by",
    "ThreadInfo": "thread_id status frame_info",
}
# What reads and writes the files of its sampler, and polls collections for it.
NOT_OURS = {"BinaryReader", "BinaryWriter", "GCMonitor", "zstd_available"}


def public(of):
    return {name for name in dir(of) if not name.startswith("_")}


def outcome(call):
    """What it gives, or the type of what it raises."""
    try:
        return call()
    except Exception as error:
        return type(error)


def wrong(module, pid, dead):
    """Calls with processes that are not there, may not be read or are not Python, and with arguments of wrong types."""
    for function in (module.is_python_process, module.get_child_pids, module.get_gc_stats, module.RemoteUnwinder):
        for number in (-1, 1, dead, pid, 1 << 40, "1", None):
            # All processes are children of the first one, and others come and go.
            if number == 1 and function is module.get_child_pids:
                continue
            yield function.__name__, number, outcome(lambda: function(number))
        yield function.__name__, "no argument", outcome(function)
        yield function.__name__, "unknown option", outcome(lambda: function(pid, unknown=True))
        yield function.__name__, "two positions", outcome(lambda: function(pid, True))
    both = {"all_threads": 1, "only_active_thread": [0]}
    yield "RemoteUnwinder", "both", outcome(lambda: module.RemoteUnwinder(os.getpid(), **both))
    yield "RemoteUnwinder", "a mode that is none", outcome(lambda: module.RemoteUnwinder(os.getpid(), mode="wall"))
    unwinder = module.RemoteUnwinder(os.getpid(), all_threads=1, stats=0)
    yield "get_stats", "none", outcome(unwinder.get_stats)


def death(module):
    """What is raised when the target has ended."""
    target = subprocess.Popen([sys.executable, "-c", "print(1, flush=True); input()"], stdin=-1, stdout=-1)
    target.stdout.readline()
    unwinder = module.RemoteUnwinder(target.pid)
    target.kill()
    target.wait()
    return [outcome(call) for call in (unwinder.get_stack_trace, unwinder.pause_threads, unwinder.get_all_awaited_by)]


for name, fields in FIELDS.items():
    # Matching is there from 3.10 on.
    if sys.version_info >= (3, 10):
        assert getattr(slipstream, name).__match_args__ == tuple(fields.split()), name
for name in slipstream.__all__:
    assert name.startswith("__") or name.isupper() or getattr(slipstream, name).__doc__, name
for name in public(slipstream.RemoteUnwinder):
    assert getattr(slipstream.RemoteUnwinder, name).__doc__, name

if sys.version_info >= (3, 15):
    import _remote_debugging as stock

    assert public(stock) - NOT_OURS <= set(slipstream.__all__), public(stock) - set(slipstream.__all__)
    for name in public(stock) - NOT_OURS:
        theirs, ours = getattr(stock, name), getattr(slipstream, name)
        if name in FIELDS:
            assert ours is theirs, name
        elif isinstance(theirs, int):
            assert ours == theirs, name
        elif name != "RemoteUnwinder":
            assert inspect.signature(ours) == inspect.signature(theirs), name
    theirs, ours = stock.RemoteUnwinder, slipstream.RemoteUnwinder
    assert public(theirs) == public(ours), public(theirs) ^ public(ours)
    for name in public(theirs):
        assert inspect.signature(getattr(ours, name)) == inspect.signature(getattr(theirs, name)), name

    other = subprocess.Popen(["/bin/sleep", "60"])
    dead = subprocess.Popen(["/bin/sleep", "0"])
    dead.wait()
    for expected, found in zip(wrong(stock, other.pid, dead.pid), wrong(slipstream, other.pid, dead.pid)):
        assert expected == found, (expected, found)
    other.kill()
    other.wait()
    assert death(stock) == death(slipstream), (death(stock), death(slipstream))

    of_stock = stock.RemoteUnwinder(os.getpid(), stats=True).get_stats()
    of_ours = slipstream.RemoteUnwinder(os.getpid(), stats=True).get_stats()
    assert of_stock.keys() <= of_ours.keys(), of_stock.keys() - of_ours.keys()
