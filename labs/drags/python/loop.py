"""An ASGI service. Each request awaits for 2 ms, as it would an answer. Then `/blocks` sleeps for 10 ms in the event loop, as a call of a
library that knows nothing of it does; `/computes` computes for 6 ms there, after a longer answer; `/awaits` awaits as long. Each response ends with the nanoseconds that the loop did nothing else."""

import asyncio
import time

clock = time.perf_counter_ns
ANSWER_S = 0.002
WAIT_S = 0.010
COMPUTES_NS = 6_000_000


def call_library():
    time.sleep(WAIT_S)


def render():
    begin = time.thread_time_ns()
    while (took := time.thread_time_ns() - begin) < COMPUTES_NS:
        pass
    return took


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    took = 0
    await asyncio.sleep(ANSWER_S)
    if scope["path"] == "/blocks":
        begin = clock()
        call_library()
        took = clock() - begin
    elif scope["path"] == "/computes":
        await asyncio.sleep(WAIT_S)
        took = render()
    elif scope["path"] == "/awaits":
        await asyncio.sleep(WAIT_S)
    body = b"done\n%d" % took
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
