"""Slices of the same requests to each variant in turn; CPU per request from schedstat, requests per second from the clock.

Each variant runs in several processes, NAME, NAME2, NAME3, which take turns: two of one kind differ by up to 1 %,
by where their memory happens to lie. A round has one slice of every variant, in random order, so that all see the same machine; what is compared is always two
slices of one round. A slice is a fixed number of requests over one kept connection to nginx, after one that is not counted:
it brings the worker's memory back into the processor's caches, which the variants before it have filled with their own.

The variant has one worker. It is waited for at the borders of a slice until it sleeps, so what it does after the answer
(ending the request, rolling back) counts, and CPU time divides by requests exactly.

Before the measurement each variant must answer every page of a list, byte by byte, like the first one; the list has pages
in two languages, a signed-in editor and a form with mistakes, each of which would show in the next page if it leaked. With
the extension, every measured request must have been a restored one.
"""

import argparse
import base64
import json
import os
import platform
import random
import socket
import statistics
import sys
import time
from urllib.parse import urlsplit

#: The name that pages contain in absolute addresses: the same for all variants, whose ports differ.
HOST = "journal.example"

EDITOR = "Authorization: Basic " + base64.b64encode(b"editor:editor").decode()

#: Pages that are measured: a list of ten posts, mostly the work of Doctrine and Twig; one post; a page without a database.
PATHS = ["/glossary/2", "/news/page/2", "/news/post/news-2", "/about"]

#: Requests of the comparison: path, further headers, body of a POST.
PAGES = [
    ("/news/page/2", [], None),
    ("/news/page/2", ["Accept-Language: de"], None),
    ("/admin", [EDITOR], None),
    ("/news/page/2", [], None),
    ("/news/post/news-1/comment", [], "comment[name]=A&comment[email]=nobody&comment[text]=short"),
    ("/news/post/news-1/comment", [], None),
    ("/search?q=river", ["Cookie: a=b"], None),
    ("/search", [], None),
    ("/admin", [], None),
    ("/no/such/page", [], None),
    ("/sports/author/3", [], None),
    ("/food/archive/2023", [], None),
    ("/", ["Accept-Language: de"], None),
    ("/news/feed.xml", [], None),
    ("/about", [], None),
    ("/glossary/3", [], None),
    ("/news/page/1", [], None),
]

#: How often the list is gone through.
COMPARISONS = 3

#: Longest wait for a worker to sleep after its answer.
IDLE_LIMIT_S = 5

#: Where PHP-FPM says why; `run` sets the variable.
LOG_HINT = f"see {os.environ.get('SLIP_SYMFONY_DIR', 'the folder of the lab')}/log"


def fail(message, hint=None):
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    sys.exit(1)


class Variant:
    """One front controller under one PHP-FPM with one worker, and a kept connection to the nginx before it."""

    def __init__(self, text):
        self.name, self.url, pid = text.split("=")
        self.pid = int(pid)
        self.connection = socket.create_connection((urlsplit(self.url).hostname, urlsplit(self.url).port))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fetch(self, path, headers=(), form=None):
        """Status and body of one answer."""
        lines = [f"{'GET' if form is None else 'POST'} {path} HTTP/1.1", f"Host: {HOST}", *headers]
        if form is not None:
            lines += ["Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(form)}"]
        self.connection.sendall(("\r\n".join(lines) + "\r\n\r\n" + (form or "")).encode())
        data = self._receive(b"")
        while b"\r\n\r\n" not in data:
            data = self._receive(data)
        head, data = data.split(b"\r\n\r\n", 1)
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        status = int(head.split(b" ", 2)[1])
        if fields.get(b"transfer-encoding") == b"chunked":
            return status, self._chunks(data)
        length = int(fields[b"content-length"])
        while len(data) < length:
            data = self._receive(data)
        return status, data

    def _chunks(self, data):
        """The body of an answer of unknown length."""
        body = b""
        while True:
            while b"\r\n" not in data:
                data = self._receive(data)
            size, data = data.split(b"\r\n", 1)
            size = int(size, 16)
            while len(data) < size + 2:
                data = self._receive(data)
            body, data = body + data[:size], data[size + 2 :]
            if size == 0:
                return body

    def _receive(self, data):
        more = self.connection.recv(65_536)
        if not more:
            fail(f"{self.name}: the connection was closed in the middle of an answer")
        return data + more

    def cpu_ns(self):
        """CPU time of the worker, once it sleeps again."""
        limit = time.monotonic() + IDLE_LIMIT_S
        while True:
            with open(f"/proc/{self.pid}/stat", encoding="utf-8") as file:
                if file.read().rsplit(") ", 1)[1].startswith("S"):
                    break
            if time.monotonic() > limit:
                fail(f"{self.name}: the worker does not come to rest")
            time.sleep(0.0002)
        with open(f"/proc/{self.pid}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[0])

    def restores(self):
        """How often the worker has restored a snapshot; None without the extension."""
        _, body = self.fetch("/status")
        status = json.loads(body)
        return None if status is None else status["restores"]

    def slice(self, path, requests):
        """CPU nanoseconds per request and requests per second."""
        self.expect(path)
        cpu, began = self.cpu_ns(), time.perf_counter()
        for _ in range(requests):
            self.expect(path)
        seconds = time.perf_counter() - began
        return (self.cpu_ns() - cpu) / requests, requests / seconds

    def expect(self, path):
        status, _ = self.fetch(path)
        if status != 200:
            fail(f"{self.name}: {path} is answered with status {status}")


def compare_pages(variants, restoring):
    """Ends the program unless all variants answer alike, and restore where they should."""
    before = {variant.name: variant.restores() for variant in variants}
    for _ in range(COMPARISONS):
        for path, headers, form in PAGES:
            truth = variants[0].fetch(path, headers, form)
            for variant in variants[1:]:
                answer = variant.fetch(path, headers, form)
                if answer != truth:
                    show_difference(variants[0].name, truth, variant.name, answer, path)
    for variant in variants:
        if kind_of(variant.name) in restoring:
            check_restores(variant, before[variant.name], 1)


def show_difference(name, truth, other, answer, path):
    lines = list(zip(truth[1].splitlines(), answer[1].splitlines()))
    first = next(((a, b) for a, b in lines if a != b), (b"", b""))
    fail(
        f"{path}: {other} answers {answer[0]} with {len(answer[1])} bytes, {name} {truth[0]} with {len(truth[1])}; "
        f"first line that differs: {first[1].decode()!r} instead of {first[0].decode()!r}"
    )


def check_restores(variant, before, least):
    """Ends the program unless the worker has restored at least so often since."""
    now = variant.restores()
    if before is None or now is None:
        fail(f"{variant.name}: the extension is not loaded", LOG_HINT)
    if now - before < least:
        fail(f"{variant.name}: {now - before} of {least} requests were restored ones", LOG_HINT)


def interval(values, rounds=2_000):
    """Median and its 95 % interval by resampling."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(rounds))
    return statistics.median(values), medians[int(rounds * 0.025)], medians[int(rounds * 0.975)]


def kind_of(name):
    """Of which variant it is a process."""
    return name.rstrip("0123456789")


def measure(variants, path, options):
    """Per kind of variant the lists of CPU nanoseconds per request and of requests per second, one value a round."""
    kinds = {}
    for variant in variants:
        variant.slice(path, 2 * options.slice)
        kinds.setdefault(kind_of(variant.name), []).append(variant)
    before = {variant.name: variant.restores() for variant in variants}
    slices = {kind: {"cpu_ns": [], "rate_hz": []} for kind in kinds}
    draw = random.Random(2)
    for pair in range(options.pairs):
        for kind in draw.sample(list(kinds), len(kinds)):
            cpu_ns, rate_hz = kinds[kind][pair % len(kinds[kind])].slice(path, options.slice)
            slices[kind]["cpu_ns"].append(cpu_ns)
            slices[kind]["rate_hz"].append(rate_hz)
        if pair % 50 == 49:
            print(f"{path}: {pair + 1} of {options.pairs} rounds", file=sys.stderr)
    for kind in set(kinds) & set(options.restores):
        for variant in kinds[kind]:
            check_restores(variant, before[variant.name], options.pairs // len(kinds[kind]) * (options.slice + 1))
    return slices


def summarize(slices):
    """One row per kind of variant; ratios to the first one, of slices in the same round."""
    base, rows = next(iter(slices.values())), []
    for kind, own in slices.items():
        rows.append({
            "variant": kind,
            "cpu_us": statistics.median(own["cpu_ns"]) / 1e3,
            "rate_hz": statistics.median(own["rate_hz"]),
            "cpu_ratio": interval([ours / theirs for theirs, ours in zip(base["cpu_ns"], own["cpu_ns"])]),
            "rate_ratio": interval([ours / theirs for theirs, ours in zip(base["rate_hz"], own["rate_hz"])]),
        })
    return rows


def print_table(path, rows):
    base = rows[0]["variant"]
    heads = [path, "CPU us/request", "requests/s", f"CPU: this / {base}", f"requests/s: this / {base}"]
    table = [heads]
    for row in rows:
        gains = ["{:.3f} [{:.3f}, {:.3f}]".format(*row[key]) for key in ("cpu_ratio", "rate_ratio")]
        table.append([row["variant"], f"{row['cpu_us']:.0f}", f"{row['rate_hz']:.0f}", *gains])
    widths = [max(len(line[column]) for line in table) for column in range(len(heads))]
    for line in table:
        cells = [line[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])]
        print("  ".join(cells))


#: What is promised of each page: a variant's CPU per request, relative to another one's.
BARS = [("warm", "base", 0.33), ("warm", "warm-remap", 0.72)]

#: Worth a line, without a bar.
PAIRS = [
    ("all", "base", None),
    ("all", "all-remap", None),
    ("warm-mapped", "mapped", None),
    ("loaded", "base", None),
    ("control", "base", None),
]


def print_ratios(pages, wanted):
    """Prints each ratio whose two variants were measured, of one request of each page; the texts of those with a bar, and
    whether all of them hold."""
    texts, holds = [], True
    for name, against, bar in wanted:
        if any(variant not in page["slices"] for page in pages for variant in (name, against)):
            continue
        own, other = ([sum(slices) for slices in zip(*(page["slices"][variant]["cpu_ns"] for page in pages))]
                      for variant in (name, against))
        ratio = interval([ours / theirs for ours, theirs in zip(own, other)])
        text = "CPU of {} is {:.3f} [{:.3f}, {:.3f}] of {}".format(name, *ratio, against)
        if bar is not None:
            text += f" (bar {bar})"
            texts.append(text)
            holds = holds and ratio[2] <= bar
        print(text)
    return "; ".join(texts), holds


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(": ", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", action="append", required=True, help="NAME=URL=PID, all but the digits at the end of NAME is its kind; the first kind is compared with")
    parser.add_argument("--restores", action="append", default=[], help="name of a variant that must restore a snapshot")
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--slice", type=int, default=10)
    parser.add_argument("--path", action="append", help="page to measure; repeatable")
    parser.add_argument("--json", help="file for the result")
    options = parser.parse_args()
    if options.pairs < 1 or options.slice < 1:
        fail("--pairs and --slice must be at least 1")
    variants = [Variant(text) for text in options.variant]

    compare_pages(variants, options.restores)
    print(f"all variants answer {len(PAGES)} requests alike, {COMPARISONS} times; {options.pairs} rounds of {options.slice} "
          "requests each")
    pages = []
    results, all_hold = [], True
    for path in options.path or PATHS:
        slices = measure(variants, path, options)
        rows = summarize(slices)
        pages.append({"path": path, "rows": rows, "slices": slices})
        print()
        print_table(path, rows)
        text, holds = print_ratios(pages[-1:], BARS + PAIRS)
        results.append(f"{path}: {text}")
        all_hold = all_hold and holds
    print("\none request of each page")
    text, _ = print_ratios(pages, BARS)
    results.append(f"one request of each page: {text}")
    if options.json:
        record = {
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": {"kernel": platform.release(), "cores": os.cpu_count(), "processor": processor()},
            "pairs": options.pairs,
            "slice": options.slice,
            "pages": pages,
        }
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
            file.write("\n")
    print(f"result: {'; '.join(results)}")
    sys.exit(0 if all_hold else 1)


if __name__ == "__main__":
    main()
