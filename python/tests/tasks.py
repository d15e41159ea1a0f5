"""Reads the tasks of process PID, as one that `tasks_target.py` runs in, and compares them with the report on standard input."""

import json
import sys

import slipstream

pid = int(sys.argv[1])
reports = {int(tid): sorted(tasks) for tid, tasks in json.load(sys.stdin).items()}

unwinder = slipstream.RemoteUnwinder(pid, all_threads=True)
for _ in range(3):
    lists = {entry.thread_id: entry.awaited_by for entry in unwinder.get_all_awaited_by()}
    assert lists.pop(0) == [], "no thread has ended"
    assert lists.keys() == reports.keys(), (lists.keys(), reports.keys())
    for tid, expected in reports.items():
        names = {task.task_id: task.task_name for task in lists[tid]}
        running = {task.task_name for task in lists[tid] if task.coroutine_stack[0].call_stack[0].funcname == "stands"}
        seen = []
        for task in lists[tid]:
            (coroutine,) = task.coroutine_stack
            frames = [[frame.funcname, frame.location.lineno] for frame in coroutine.call_stack]
            waiters = sorted(names[waiter.task_name] for waiter in task.awaited_by)
            seen.append([task.task_name, waiters, frames])
        by_name = {task[0]: task for task in seen}
        for name, waiters, frames in expected:
            # asyncio ends a stack at an asynchronous generator, because its wrapper tells nothing; we go on.
            assert by_name[name][:2] == [name, waiters], (by_name[name], waiters)
            assert by_name[name][2][-len(frames) :] == frames, (by_name[name], frames)
            more = [frame for frame, _ in by_name[name][2][: -len(frames)]]
            assert more == (["numbers"] if frames[-1][0] == "consumer" else []), (name, more)
        # And the running one, which is not in the report.
        assert len(seen) == len(expected) + 1, (len(seen), len(expected))

    for entry in unwinder.get_async_stack_trace():
        (task,) = entry.awaited_by
        (coroutine,) = task.coroutine_stack
        names = [frame.funcname for frame in coroutine.call_stack]
        assert names[-2:] == ["stands", "main"], names
