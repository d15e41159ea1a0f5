"""Looks at threads and tasks that come and go all the time: each look is whole or raises, and hardly a frame lacks its name.

One may: a code object that dies between the copy of its frame and the look at its name. None has a name that is none.
"""

import re
import subprocess
import sys
import time

import slipstream

PROGRAM = """
import asyncio, threading, types

def make(n):
    space = {}
    exec(f"def f{n}(g):\\n    return g()\\nasync def c{n}(a):\\n    await a\\n", space)
    return space[f"f{n}"], space[f"c{n}"]

def churn():
    n = 0
    while True:
        n += 1
        function, _ = make(n)
        function(lambda: sum(range(50)))

def start():
    while True:
        thread = threading.Thread(target=lambda: sum(range(1000)))
        thread.start()
        thread.join()

async def main():
    n = 0
    while True:
        n += 1
        _, coroutine = make(n)
        tasks = [asyncio.create_task(coroutine(asyncio.sleep(0))) for _ in range(3)]
        await asyncio.gather(*tasks)

threading.Thread(target=churn, daemon=True).start()
threading.Thread(target=start, daemon=True).start()
asyncio.run(main())
"""

target = subprocess.Popen([sys.executable, "-c", PROGRAM])
time.sleep(0.5)
try:
    unwinder = slipstream.RemoteUnwinder(target.pid, all_threads=True)
    looks = [unwinder.get_stack_trace]
    if sys.version_info >= (3, 14):
        looks += [unwinder.get_all_awaited_by, unwinder.get_async_stack_trace]
    nameless = 0
    whole = {look: 0 for look in looks}
    # 1 % of 5,000 looks would be 50, give or take 7 by chance alone; with 3.13 there are some 43. Where it is clear before, by four times
    # what chance does, it ends before.
    end = time.monotonic() + 15
    while time.monotonic() < end:
        if min(whole.values()) >= 5_000 and (nameless + 4 * (nameless + 1) ** 0.5) * 100 <= sum(whole.values()):
            break
        for look in looks:
            try:
                text = repr(look())
            except RuntimeError:
                continue
            names = set(re.findall(r"funcname='([^']*)'", text))
            assert all(re.fullmatch(r"[\w.<>]+", name) for name in names), names
            nameless += "<unreadable>" in text
            whole[look] += 1
    assert all(whole.values()), whole
    assert nameless * 100 <= sum(whole.values()), (nameless, whole)
finally:
    target.kill()
    target.wait()
