"""What `run` measures: asks two PHP-FPM workers in turns and reads what each request's restore took."""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

#: Images: name, KiB of heap, pages that each request writes on purpose. The engine writes some more.
IMAGES = [("4 MiB", 3 * 1024, 146), ("64 MiB", 63 * 1024, 146)]

#: Requests in a row to one worker.
SLICE = 10

#: Requests until both know which pages are written.
WARM_UP = 50

BAR_US = 60
BAR_RATIO = 1.5

HERE = pathlib.Path(__file__).parent


def fail(message, hint=None):
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    sys.exit(1)


class Worker:
    """A PHP-FPM with one worker, asked by FastCGI without a web server between."""

    def __init__(self, folder, name, kib, pages, extension, mechanism):
        self.name, self.folder = name, folder
        self.socket = folder / "fpm.socket"
        self.script = folder / "page.php"
        folder.mkdir()
        folder.chmod(0o755)
        shutil.copy(HERE / "page.php", self.script)
        shutil.copy(extension, folder / "slipstream.so")
        user = "user = www-data\ngroup = www-data\n" if os.geteuid() == 0 else ""
        (folder / "fpm.conf").write_text(
            f"[global]\nerror_log = {folder}/fpm.log\ndaemonize = no\n[bench]\n{user}listen = {self.socket}\n"
            f"listen.mode = 0666\npm = static\npm.max_children = 1\n"
            f"env[BENCH_IMAGE_KIB] = {kib}\nenv[BENCH_PAGES] = {pages}\n",
            encoding="utf-8",
        )
        settings = ["zend_extension=opcache", f"extension={folder}/slipstream.so", "opcache.enable=1",
                    "opcache.validate_timestamps=0", "opcache.file_update_protection=0", f"slipstream.restore={mechanism}"]
        command = ["/usr/sbin/php-fpm8.2", "-n", "-y", str(folder / "fpm.conf")]
        for setting in settings:
            command += ["-d", setting]
        if os.geteuid() == 0:
            command.append("-R")
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while not self.listens():
            if time.monotonic() > deadline or self.process.poll() is not None:
                fail("PHP-FPM does not listen", f"see {folder}/fpm.log")
            time.sleep(0.02)

    def listens(self):
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(self.socket)) == 0

    def ask(self):
        """The page's answer, a dictionary."""
        variables = {"GATEWAY_INTERFACE": "CGI/1.1", "REQUEST_METHOD": "GET", "SCRIPT_FILENAME": str(self.script),
                     "SCRIPT_NAME": "/page.php", "REQUEST_URI": "/page.php", "HTTP_HOST": "bench.example"}
        pairs = b"".join(struct.pack("BB", len(key), len(value)) + key.encode() + value.encode()
                         for key, value in variables.items())
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            connection.sendall(record(1, struct.pack(">HB5x", 1, 0)) + record(4, pairs) + record(4, b"") + record(5, b""))
            answer, output = b"", b""
            while chunk := connection.recv(65536):
                answer += chunk
        while len(answer) >= 8:
            _, kind, _, length, padding = struct.unpack(">BBHHBx", answer[:8])
            if kind == 6:
                output += answer[8:8 + length]
            answer = answer[8 + length + padding:]
        body = output.partition(b"\r\n\r\n")[2]
        try:
            return json.loads(body)
        except json.JSONDecodeError:
            fail(f"{self.name}: {output.decode(errors='replace')[:400]}")

    def stop(self):
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(10)


def record(kind, content):
    return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content


def interval(values, of=statistics.median, rounds=1_000):
    draw = random.Random(1)
    found = sorted(of(draw.choices(values, k=len(values))) for _ in range(rounds))
    return of(values), found[int(rounds * 0.025)], found[int(rounds * 0.975)]


def main():
    extension, requests, mechanism = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="slipstream-restore-"))
    folder.chmod(0o755)
    workers = []
    try:
        for i, (name, kib, pages) in enumerate(IMAGES):
            workers.append(Worker(folder / str(i), name, kib, pages, extension, mechanism))
        last = {}
        for worker in workers:
            for _ in range(WARM_UP):
                last = worker.ask()
            if not last["restored"]:
                fail(f"{worker.name}: the request was not restored", f"{last}")
        spent = {worker.name: [] for worker in workers}
        dirty = {worker.name: [] for worker in workers}
        mechanism = {}
        for _ in range(max(1, requests // SLICE)):
            for worker in workers:
                for i in range(SLICE):
                    last = worker.ask()
                    mechanism[worker.name] = last["mechanism"]
                    # The first of a slice comes after a pause: its caches are the other worker's.
                    if i:
                        spent[worker.name].append(last["restore_ns"] / 1e3)
                        dirty[worker.name].append(last["dirty"])
        for worker in workers:
            print("{}: {:.1f} us [{:.1f}, {:.1f}] for a restore, {:.0f} dirty pages, mechanism {}".format(
                worker.name, *interval(spent[worker.name]), statistics.median(dirty[worker.name]), mechanism[worker.name]))
    finally:
        for worker in workers:
            worker.stop()
        shutil.rmtree(folder)
    small, large = (spent[name] for name, _, _ in IMAGES)
    ratio = interval([b / a for a, b in zip(small, large)])
    cost = interval(small)
    pages = statistics.median(dirty[IMAGES[0][0]])
    print("result: {:.1f} us [{:.1f}, {:.1f}] for a restore at {:.0f} dirty pages (bar {}), 64 MiB take {:.2f} [{:.2f}, "
          "{:.2f}] times as long as 4 MiB (bar {})".format(*cost, pages, BAR_US, *ratio, BAR_RATIO))
    sys.exit(0 if cost[2] <= BAR_US and ratio[2] <= BAR_RATIO else 1)


main()
