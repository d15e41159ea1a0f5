"""What keeping books costs, beside nothing, beside programs that do nothing, and beside what others see of the same calls."""

import contextlib
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from interval import middle, text
from lab import Books, Stack, children, counting, cpu_ns, programs_ns

#: Most BPF time for a call, us; most CPU more for a call and most calls a second less, per cent.
BPF_BAR, CPU_BAR, CALLS_BAR = 2.0, 8.0, 5.0
#: Most CPU more for a page of WordPress, per cent.
PAGE_BAR = 1.0
SLICE_S = 0.25
#: Slices of what is there to compare with.
OTHERS = 24
#: Calls of a page.
GETS = 40
#: Pages of a slice, one after the other: a quarter of a second. More make it no surer: what the machine itself is faster or slower by changes slowly.
PAGES = 10
#: Programs that do nothing have a slice in every so many rounds.
EMPTY_ROUNDS = 3
#: From when programs are told to come or to go until pages are served again, seconds. They come in a quarter of one and go in 0.7, most of which is
#: waiting, and pages that follow no rest take half a per cent more than pages after one of 0.07 s: so each slice follows the same.
REST_S = 0.8
#: Most time until a peer sees the calls.
PATIENCE_S = 20


class Redis:
    """How many calls it has had, asked by a connection of our own."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")

    def calls(self):
        self.socket.sendall(b"*2\r\n$4\r\nINFO\r\n$5\r\nstats\r\n")
        length = int(self.file.readline()[1:])
        text = self.file.read(length + 2).decode()
        return int(re.search(r"total_commands_processed:(\d+)", text)[1])


class Ours:
    """The books, or programs that do nothing in their place."""

    def __init__(self, books, word):
        self.books, self.word = books, word

    def begin(self):
        self.books.tell(self.word)
        return [self.books.pid]

    def end(self):
        self.books.tell("off")


class Peer:
    """Another program that writes down the calls as they happen."""

    def __init__(self, arguments, folder, sees):
        self.arguments, self.folder, self.sees, self.process = arguments, folder, sees, None

    def begin(self):
        """Starts it, and waits until it sees calls. What there was before is no part of a slice."""
        with open(f"{self.folder}/said", "w") as said:
            self.process = subprocess.Popen(self.arguments, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE_S
        while not self.sees():
            if self.process.poll() is not None or time.monotonic() > end:
                with open(f"{self.folder}/said") as said:
                    sys.exit(f"error: {self.arguments[0]} does not see the calls: {said.read()[-400:]}")
            time.sleep(0.01)
        return [self.process.pid]

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def peers(stack, workers, folder):
    """By name. Each writes what it sees into a file, as whoever looks for the reason of slow calls has it do."""
    stack.run("install", "strace", "tcpdump", "linux-perf")
    file, pids = f"{folder}/seen", ",".join(map(str, workers))

    def traced():
        for pid in workers:
            with open(f"/proc/{pid}/status") as status:
                if "TracerPid:\t0\n" in status.read():
                    return False
        return True

    def has_written():
        with contextlib.suppress(OSError), open(file, "rb") as seen:
            return len(seen.read(8192)) == 8192
        return False

    strace = ["strace", "-f", "-T", "-tt", "-e", "trace=%network,read,write,poll", "-o", file, "-p", pids]
    tcpdump = ["tcpdump", "-i", "lo", "-s", "0", "-w", file, "-U", "tcp", "port", stack.values["STACK_REDIS_PORT"]]
    perf = ["perf", "trace", "-e", "connect,sendto,recvfrom,poll", "-p", pids, "-o", file]
    return {"strace": Peer(strace, folder, traced), "tcpdump": Peer(tcpdump, folder, has_written), "perf trace": Peer(perf, folder, has_written)}


def cost(options):
    stack, folder = Stack("--children", "2"), tempfile.mkdtemp(prefix="slip-peers.", dir="/var/tmp")
    # tcpdump writes as a user of its own.
    os.chmod(folder, 0o777)
    try:
        workers = children(int(stack.values["STACK_FPM_PID"]))
        servers = [int(stack.values["STACK_REDIS_PID"]), int(stack.values["STACK_NGINX_PID"])]
        servers += children(servers[1])
        others = peers(stack, workers, folder)
        redis, books = Redis(int(stack.values["STACK_REDIS_PORT"])), Books(workers)
        load = stack.load("--rate", 0, "--concurrency", 2, "--target", "lab", "--url", f"/lab/redis.php?gets={GETS}", "--seconds", 100_000)
        try:
            time.sleep(1)
            return compare(options, workers + servers, redis, books, others)
        finally:
            load.send_signal(signal.SIGKILL)
            load.wait()
            books.end()
    finally:
        stack.down()
        shutil.rmtree(folder, ignore_errors=True)


def measure(pids, redis, seconds, more=()):
    calls, used, own, begin = redis.calls(), cpu_ns(pids), cpu_ns(more), time.perf_counter()
    time.sleep(seconds)
    took = time.perf_counter() - begin
    calls = redis.calls() - calls
    return calls / took, (cpu_ns(pids) - used) / calls, (cpu_ns(more) - own) / calls


def compare(options, pids, redis, books, others):
    variants = {"empty": Ours(books, "empty"), "on": Ours(books, "on"), **others}
    rounds = {name: [] for name in variants}
    for number in range(options.slices):
        names = list(variants) if number % max(1, options.slices // OTHERS) == 0 else ["on"]
        for name in names:
            # Each beside nothing, before it or after it.
            first = len(rounds[name]) % 2
            nothing = measure(pids, redis, SLICE_S) if first else None
            found = measure(pids, redis, SLICE_S, variants[name].begin())
            variants[name].end()
            nothing = nothing or measure(pids, redis, SLICE_S)
            rounds[name].append((100 * (1 - found[0] / nothing[0]), 100 * ((found[1] + found[2]) / nothing[1] - 1), nothing[0]))
    counted = {"empty": [], "on": []}
    with counting():
        for number in range(160):
            variant = ("empty", "on")[number % 2]
            books.tell(variant)
            calls, taken = redis.calls(), programs_ns(books.pid)
            time.sleep(SLICE_S)
            counted[variant].append((programs_ns(books.pid) - taken) / (redis.calls() - calls) / 1e3)
            books.tell("off")
    # What it counts for programs that do nothing is the counting itself.
    empty = statistics.median(counted["empty"])
    bpf = middle([one - empty for one in counted["on"]])
    rate = statistics.median(nothing for found in rounds.values() for _, _, nothing in found)
    whole = statistics.median(counted["on"])
    parts, holds = [f"{rate:,.0f} calls a second, BPF {text(bpf)} us a call (bar {BPF_BAR:.0f}; counted {whole:.2f} and {empty:.2f} when empty)"], bpf[2] <= BPF_BAR
    print(parts[0])
    for name, found in rounds.items():
        fewer, more = middle([one for one, _, _ in found]), middle([one for _, one, _ in found])
        parts.append(f"{name}: CPU per call {text(more)} % more, calls {text(fewer)} % fewer")
        if name == "on":
            holds = holds and more[2] <= CPU_BAR and fewer[0] <= CALLS_BAR
    print(f"result: {'; '.join(parts)} (bars {CPU_BAR:.0f} and {CALLS_BAR:.0f}, of on alone); {options.slices} paired slices, {len(rounds['empty'])} of the others")
    return 0 if holds else 1


def cost_wordpress(options):
    """Pages one after the other, and the CPU's time of all that serve them: at the end of each nothing is under way. Of a slice the median
    of its pages counts, each beside the same one: now and then a server does something else."""
    stack = Stack("--children", "2")
    try:
        stack.run("seed")
        masters = [int(stack.values[f"STACK_{name}_PID"]) for name in ("FPM", "NGINX", "MARIADB", "REDIS")]
        pids = masters + [child for master in masters for child in children(master)]
        books = Books(children(masters[0]))
        urls = [f"{stack.values['STACK_WORDPRESS_URL']}/{page}" for page in ("", "?p=5", "?paged=2", "?s=pump", "?rest_route=/wp/v2/posts")]
        urls = [url for url in urls if fetch(url)]
        for _ in range(3):
            visit(urls, pids)
        more, nothing, page = {"on": [], "empty": []}, visit_after(books, "off", urls, pids), []
        for number in range(options.slices):
            for name in ("on",) if number % EMPTY_ROUNDS else ("empty", "on"):
                before = nothing
                seen = visit_after(books, name, urls, pids)
                nothing = visit_after(books, "off", urls, pids)
                more[name].append(100 * (statistics.median(2 * one / (left + right) for one, left, right in zip(seen, before, nothing)) - 1))
                page.append(statistics.mean(nothing))
        books.end()
        found, empty = middle(more["on"]), middle(more["empty"])
        print(
            f"result: CPU per page {text(found)} % more (bar {PAGE_BAR:.0f}), with programs that do nothing {text(empty)} ({len(more['empty'])} slices); "
            f"{statistics.median(page) / 1e6:.1f} ms a page; {options.slices} slices of {PAGES}, each between two of nothing"
        )
        return 0 if found[2] <= PAGE_BAR else 1
    finally:
        stack.down()


def visit_after(books, word, urls, pids):
    """CPU time of each page once the books were told this, with its share of fetching them, which a recording does once a second."""
    end = time.monotonic() + REST_S
    books.tell(word)
    time.sleep(max(0, end - time.monotonic()))
    begin = time.monotonic()
    pages = visit(urls, pids)
    share = (time.monotonic() - begin) / (len(urls) + len(pages))
    if word != "on":
        return pages
    before = cpu_ns([books.pid])
    books.tell("take")
    fetching = share * (cpu_ns([books.pid]) - before)
    return [page + fetching for page in pages]


def fetch(url):
    """Whether there is such a page."""
    try:
        with urllib.request.urlopen(url) as response:
            return bool(response.read())
    except OSError:
        return False


def visit(urls, pids):
    """CPU time of each page, of all that serve it. Nobody has served any while programs came or went, so each page is fetched once before."""
    for url in urls:
        fetch(url)
    used, pages = cpu_ns(pids), []
    for number in range(PAGES):
        if not fetch(urls[number % len(urls)]):
            sys.exit("error: WordPress has no such page any more")
        before, used = used, cpu_ns(pids)
        pages.append(used - before)
    return pages
