"""Pools of one worker that ask a Redis of ours: one makes its connections again and again, the other has the extension keep them.

Redis has the last CPU to itself, as a server elsewhere has: what it does for connections is not in the way of who asks.
"""

import os
import statistics
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in "lib", "connections":
    sys.path.insert(0, os.path.join(HERE, "..", folder))
# pylint: disable=wrong-import-position
import fpm
from pages import Certificates, Pages, Redis

#: Requests to each of both, in turns: so many in a row, since one that comes right after one of the other kind finds the server still at work
#: on that (a request with one connection saves 0.050 ms then, and 0.065 to 0.068 in rows of 10 to 200).
PAIRS, ROW = 200, 20
#: GETs of a request.
GETS = 5


class Kept:
    """`do` is `gets`, for which a request connects once, or `commands`, for each of which it does."""

    def __init__(self, client, do):
        self.client, self.do = client, do
        options = fpm.arguments(__doc__, 0).parse_args([])
        self.place = fpm.Place(options, f"{HERE}/../connections/www")
        self.ends = [self.place.remove]
        self.cpus = sorted(os.sched_getaffinity(0))
        self.ends.append(lambda: os.sched_setaffinity(0, self.cpus))
        os.sched_setaffinity(0, self.cpus[:1])
        redis = self.end_with(Redis(self.place, Certificates(self.place)))
        self.servers = {}
        for name, ini in ("plain", {}), ("kept", {"slipstream.keep": f"redis://127.0.0.1:{redis.port}"}):
            self.servers[name] = self.end_with(fpm.Fpm(self.place, name, [fpm.Pool("one")], ini=ini))
        parameters = {"REDIS_PORT": str(redis.port), "REDIS_PATH": redis.inside}
        nginx = self.end_with(fpm.Nginx(self.place, {name: (server, "one", parameters) for name, server in self.servers.items()}))
        os.sched_setaffinity(redis.process.pid, self.cpus[-1:])
        self.pages = {name: Pages(nginx.port, name) for name in self.servers}
        for name in self.pages:
            for _ in range(PAIRS):
                self.ask(name)

    def end_with(self, server):
        self.ends.append(server.stop)
        return server

    def down(self):
        for end in reversed(self.ends):
            end()

    def ask(self, name):
        """For how long a request takes, milliseconds."""
        answer = self.pages[name].ask(self.do, client=self.client, number=GETS)
        if answer.get("value") != "right":
            raise fpm.Failed(str(answer))
        return answer["took_s"] * 1e3

    def watch(self, command):
        """What `slip doctor` says of the one that connects, in JSON."""
        target = ["--fpm", "one", "--fpm-master", self.servers["plain"].process.pid]
        done = threading.Event()

        def load():
            while not done.is_set():
                self.ask("plain")

        asks = threading.Thread(target=load)
        asks.start()
        os.sched_setaffinity(0, self.cpus)
        ran = subprocess.run([*command, *map(str, target)], stdout=subprocess.PIPE, text=True, check=False)
        os.sched_setaffinity(0, self.cpus[:1])
        done.set()
        asks.join()
        return ran.stdout

    def saved_ms(self):
        """By how much a request is shorter with the extension: the median of pairs of rows."""
        less = []
        for number in range(PAIRS // ROW):
            took = {name: [self.ask(name) for _ in range(ROW)] for name in (("plain", "kept") if number % 2 else ("kept", "plain"))}
            less.append(statistics.median(took["plain"]) - statistics.median(took["kept"]))
        return statistics.median(less)
