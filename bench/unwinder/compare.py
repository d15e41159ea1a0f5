"""Interleaves the interpreter's own RemoteUnwinder with ours on the targets of CPython's benchmark.

Run by `run` inside a root that has CPython 3.15 and that benchmark; ours is in /mnt. A round is one slice of each, in changing
order. Prints a line for each case and one that begins with `result:`.
"""

import argparse
import contextlib
import ctypes
import io
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

EXAMPLES = "/usr/share/doc/python3.15/examples/inspection"
BUSY = """
def leaf(n):
    return n * 2 + 1

def work():
    total = 0
    while True:
        for i in range(1000):
            total += leaf(i)

work()
"""
CASES = {
    # case: (program, operation, how many times the work rate and the sample rate of CPython's own it has to be)
    "basic": ("basic", "stack_trace", 5.0),
    "busy": (None, "stack_trace", 1.3),
    "deep_static": ("deep_static", "stack_trace", 5.0),
    "async_stack_trace": ("asyncio", "async_stack_trace", 3.0),
    # The last one, because from there on the kernel does not tell when the target has stood still.
    "all_awaited_by": ("asyncio", "all_awaited_by", 6.0),
}


def refuse_perf_event_open():
    """Has the kernel refuse that system call from now on, as it does in most containers."""
    load_number, jump_if_equal, give = 0x20, 0x15, 0x06
    perf_event_open, eperm, allow = 298, 0x00050001, 0x7FFF0000
    program = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in (
            (load_number, 0, 0, 0),
            (jump_if_equal, 0, 1, perf_event_open),
            (give, 0, 0, eperm),
            (give, 0, 0, allow),
        )
    )
    code = ctypes.create_string_buffer(program)
    filter = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(code)))
    no_new_privileges, seccomp, filter_mode = 38, 22, 2
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(seccomp, filter_mode, filter, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def slice_of(benchmark, unwinder, seconds, operation):
    with contextlib.redirect_stdout(io.StringIO()):
        got = benchmark.benchmark(unwinder, duration_seconds=seconds, operation=operation)
    return {
        "call_us": got["avg_work_time_us"],
        "samples_per_second": got["sample_count"] / got["wall_time"],
        "success": got["sample_count"] / got["total_attempts"],
    }


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--seconds", type=float, default=0.5)
    options.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    options = options.parse_args()

    sys.path.insert(0, EXAMPLES)
    sys.path.insert(0, "/mnt")
    import _remote_debugging as stock

    import benchmark_external_inspection as benchmark
    import slipstream

    result, holds = [], True
    for case in options.cases:
        program, operation, bar = CASES[case]
        if case == "all_awaited_by":
            refuse_perf_event_open()
        code = BUSY if program is None else benchmark.CODE_EXAMPLES[program]["code"]
        with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
            script.write(code)
            script.flush()
            target = subprocess.Popen([sys.executable, script.name], stdout=subprocess.DEVNULL)
            try:
                time.sleep(1)
                makers = {"stock": stock.RemoteUnwinder, "ours": slipstream.RemoteUnwinder}
                unwinders = {
                    name: make(target.pid, cache_frames=True, all_threads=True) for name, make in makers.items()
                }
                slices = {name: [] for name in makers}
                for nth in range(options.rounds):
                    for name in sorted(makers, reverse=nth % 2 == 1):
                        one = slice_of(benchmark, unwinders[name], options.seconds, operation)
                        slices[name].append(one)
            finally:
                target.kill()
                target.wait()
        medians = {
            name: {key: statistics.median(one[key] for one in of) for key in of[0]} for name, of in slices.items()
        }
        ratios = {
            key: statistics.median(b[key] / a[key] for a, b in zip(slices["stock"], slices["ours"]))
            for key in ("call_us", "samples_per_second")
        }
        print(
            f"{case:18} stock {medians['stock']['call_us']:8.2f} us {medians['stock']['success']:7.2%}"
            f"   ours {medians['ours']['call_us']:8.2f} us {medians['ours']['success']:7.2%}"
            f"   work rate {1 / ratios['call_us']:6.2f}x   samples {ratios['samples_per_second']:6.2f}x",
            flush=True,
        )
        better = medians["ours"]["success"] >= medians["stock"]["success"]
        holds &= min(1 / ratios["call_us"], ratios["samples_per_second"]) >= bar and better
        result.append(
            f"{case} {1 / ratios['call_us']:.2f}x work (bar {bar:g}x), {ratios['samples_per_second']:.2f}x samples, "
            f"{medians['stock']['success']:.1%} and {medians['ours']['success']:.1%} good"
        )
    print("result: " + ("" if holds else "**does not hold**: ") + "; ".join(result))


if __name__ == "__main__":
    main()
