"""Reads the process PID, as one that `threads_target.py` runs in, and compares what is seen with the report on standard input."""

import json
import sys

import slipstream

pid = int(sys.argv[1])
report = json.load(sys.stdin)
assert slipstream.is_python_process(pid)
assert not slipstream.is_python_process(1 << 30)
assert slipstream.get_child_pids(pid) == []

unwinder = slipstream.RemoteUnwinder(pid, all_threads=True, stats=True)
for _ in range(3):
    (interpreter,) = unwinder.get_stack_trace()
    assert interpreter.interpreter_id == 0, interpreter
    threads = {thread.thread_id: thread for thread in interpreter.threads}
    assert len(threads) == 2, threads
    main = threads[report["tid"]]
    assert main.status & slipstream.THREAD_STATUS_MAIN_THREAD, main
    assert not main.status & slipstream.THREAD_STATUS_HAS_EXCEPTION, main
    seen = [(frame.funcname.rsplit(".", 1)[-1], frame.location.lineno) for frame in main.frame_info]
    # `report` has gone on to the line in which it waits.
    expected = [tuple(frame) for frame in report["stack"]]
    expected[0] = ("report", expected[0][1] + 2)
    assert seen == expected, (seen, expected)
    (other,) = (thread for tid, thread in threads.items() if tid != report["tid"])
    names = [frame.funcname.rsplit(".", 1)[-1] for frame in other.frame_info]
    assert "work" in names and "wait" in names, names
    assert isinstance(main.frame_info[0], slipstream.FrameInfo)
    main.frame_info.clear()  # ours to keep: the next one is whole again
assert unwinder.get_stats()["total_samples"] == 3

(interpreter,) = slipstream.RemoteUnwinder(pid).get_stack_trace()
assert [thread.thread_id for thread in interpreter.threads] == [report["tid"]]
assert slipstream.RemoteUnwinder(pid, only_active_thread=True).get_stack_trace() == []

for wrong, error in (
    (lambda: slipstream.RemoteUnwinder(1 << 30), RuntimeError),
    (lambda: slipstream.RemoteUnwinder(pid, all_threads=True, only_active_thread=True), ValueError),
    (lambda: slipstream.RemoteUnwinder(pid).get_stats(), RuntimeError),
):
    try:
        wrong()
    except error:
        continue
    raise AssertionError(f"no {error.__name__}")
