"""An ASGI service under uvicorn that measures itself, for `sums.py`: `service.py PORT REDIS_PORT CLOCK`

One thread, an event loop of asyncio. A request asks Redis four times, sleeps for 2 ms and makes some JSON, so several are open at once.
CLOCK is a file of three numbers of 64 bits, in nanoseconds where they are times, which whoever reads them may map:

- busy: for how long the loop was not waiting: the time between two calls of `select()`, and the thread's CPU time within them;
- spans: of all requests together, from when the loop had its data to just before the last of the response is written. With no other
  request open, the loop has the data when `select()` returns; else when it reads it.
- requests that ended.
"""

import asyncio
import json
import mmap
import os
import selectors
import struct
import sys
import time

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

CALLS = 4
QUESTION = b"*2\r\n$3\r\nGET\r\n$8\r\nnot-here\r\n"

clock, cpu_clock = time.monotonic_ns, time.thread_time_ns


class Clock:
    """The three numbers, and what they are made of."""

    def __init__(self, path):
        with open(path, "w+b") as file:
            os.ftruncate(file.fileno(), mmap.PAGESIZE)
            self.page = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self.busy, self.spans, self.requests, self.open = 0, 0, 0, 0
        self.returned = clock()

    def store(self):
        struct.pack_into("=QQQ", self.page, 0, self.busy, self.spans, self.requests)


CLOCK = Clock(sys.argv[3])


class TimedSelector(selectors.DefaultSelector):
    def select(self, timeout=None):
        CLOCK.busy += clock() - CLOCK.returned
        used = cpu_clock()
        CLOCK.store()
        found = super().select(timeout)
        CLOCK.busy += cpu_clock() - used
        CLOCK.returned = clock()
        return found


class TimedTransport:
    def __init__(self, transport):
        self.transport, self.writes_at = transport, 0

    def __getattr__(self, name):
        return getattr(self.transport, name)

    def write(self, data):
        self.writes_at = clock()
        self.transport.write(data)


class TimedProtocol(H11Protocol):
    begun = 0

    def connection_made(self, transport):
        super().connection_made(TimedTransport(transport))

    def data_received(self, data):
        if not self.begun:
            self.begun = clock() if CLOCK.open else CLOCK.returned
            CLOCK.open += 1
        super().data_received(data)

    def on_response_complete(self):
        CLOCK.spans += self.transport.writes_at - self.begun
        CLOCK.requests += 1
        CLOCK.open -= 1
        self.begun = 0
        super().on_response_complete()


class Redis:
    """Connections that are kept."""

    def __init__(self, port):
        self.port, self.free = port, []

    async def ask(self):
        reader, writer = self.free.pop() if self.free else await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(QUESTION)
        answer = await reader.readline()
        self.free.append((reader, writer))
        return answer.decode()


async def application(scope, receive, send):
    answers = [await REDIS.ask() for _ in range(CALLS)]
    await asyncio.sleep(0.002)
    body = json.dumps({"path": scope["path"], "answers": answers, "squares": [number * number for number in range(2_000)]}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


REDIS = Redis(int(sys.argv[2]))


def main():
    loop = asyncio.SelectorEventLoop(TimedSelector())
    asyncio.set_event_loop(loop)
    config = uvicorn.Config(application, port=int(sys.argv[1]), loop="none", http=TimedProtocol, lifespan="off", log_level="error")
    loop.run_until_complete(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main()
