"""A process with tasks of many kinds: says what asyncio itself reports of each, and stands still. CPython 3.14 on."""

import asyncio
import json
import sys
import threading

stop = threading.Event()


async def deep(n, wait):
    if n:
        return await deep(n - 1, wait)
    await wait


async def numbers(wait):
    yield 1
    await wait
    yield 2


async def consumer(wait):
    async for _ in numbers(wait):
        pass


async def group(wait):
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(deep(2, wait), name="in a group")
        tasks.create_task(deep(0, asyncio.sleep(1_000)), name="ünicode 名")


async def all_of(wait):
    await asyncio.gather(deep(1, wait), asyncio.sleep(1_000))


async def on(task):
    await task


def graph_of(task):
    """Name, names of those that wait for it, and its frames, the innermost first, as asyncio has them."""
    graph = asyncio.capture_call_graph(task)
    frames = [(entry.frame.f_code.co_qualname, entry.frame.f_lineno) for entry in graph.call_stack]
    return [task.get_name(), sorted(waiter.future.get_name() for waiter in graph.awaited_by), frames]


async def start(eager):
    if eager:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    wait = asyncio.get_running_loop().create_future()
    first = asyncio.create_task(deep(3, wait), name="first")
    tasks = [first, asyncio.create_task(on(first), name="second"), asyncio.create_task(on(first))]
    tasks += [asyncio.create_task(body(wait)) for body in (consumer, group, all_of)]
    await asyncio.sleep(0.1)
    return tasks


def report(tasks):
    running = asyncio.current_task()
    return [graph_of(task) for task in asyncio.all_tasks() if task is not running]


async def main(eager, reports):
    tasks = await start(eager)
    reports[threading.get_native_id()] = report(tasks)
    barrier.wait()
    stands(len(tasks))


def stands(_):
    if threading.current_thread() is threading.main_thread():
        print(json.dumps(reports), flush=True)
        sys.stdin.buffer.raw.read(1)
    stop.wait()


reports = {}
barrier = threading.Barrier(2)
threading.Thread(target=lambda: asyncio.run(main(True, reports)), daemon=True).start()
asyncio.run(main(False, reports))
