"""Recordings of services that people run, and their sheets."""

import contextlib
import os
import socket
import subprocess
import sys
import time

from lab import SYMFONY, Lab, Stack

SLIP = os.environ.get("SLIP", "target/release/slip")
LOAD, SERVICES, APPS = "labs/stack/load.py", "bench/doctor/services", "labs/apps/apps"

#: How long each is watched, seconds.
WATCH_S = 10
PATIENCE_S = 30


def load(url, *paths, rate, clients):
    """Asks for these pages again and again."""
    command = ["python3", LOAD, "--target", "gunicorn", "--gunicorn-url", url, "--rate", str(rate), "--concurrency", str(clients), "--seconds", str(WATCH_S + 3)]
    return subprocess.Popen([*command, *(word for path in paths for word in ("--url", path))], stdout=subprocess.DEVNULL)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def program(port, *command, **environment):
    """A program that listens there."""
    with subprocess.Popen(command, env={**os.environ, **environment}) as process:
        try:
            end = time.monotonic() + PATIENCE_S
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                if process.poll() is not None or time.monotonic() > end:
                    sys.exit(f"error: {command[0]} does not listen")
                time.sleep(0.05)
            yield process.pid
        finally:
            process.terminate()


@contextlib.contextmanager
def lab(*arguments):
    """A lab that is there for so long."""
    found = Lab(*arguments)
    try:
        yield found
    finally:
        found.down()


@contextlib.contextmanager
def wordpress(stack):
    stack.run("seed")
    target = ["--fpm", stack.values["STACK_FPM_POOL"], "--fpm-master", stack.values["STACK_FPM_PID"], "--ask"]
    yield target, lambda: stack.load("--target", "wordpress", "--rate", 8, "--concurrency", 2, "--seconds", WATCH_S + 3)


@contextlib.contextmanager
def mediawiki(_stack):
    with lab(APPS, "SLIP_APPS_DIR", "plain") as apps:
        url = apps.values["APPS_MEDIAWIKI_PLAIN_URL"]
        yield ["--pid", apps.values["APPS_MEDIAWIKI_PLAIN_WORKER_PID"]], lambda: load(url, "/index.php/Main_Page", rate=5, clients=1)


@contextlib.contextmanager
def symfony(_stack):
    with lab(SYMFONY, "SLIP_SYMFONY_DIR", "plain=plain.php") as newspaper:
        url = newspaper.values["SYMFONY_PLAIN_URL"]
        pages = ["/news", "/news/post/news-1", "/glossary/2", "/about", "/news/feed.xml"]
        yield ["--pid", newspaper.values["SYMFONY_PLAIN_WORKER_PID"]], lambda: load(url, *pages, rate=50, clients=1)


@contextlib.contextmanager
def flask(stack):
    stack.run("install", "gunicorn", "python3-flask", "python3-redis")
    port = free_port()
    command = ["/usr/bin/python3", "/usr/bin/gunicorn", "--workers", "2", "--bind", f"127.0.0.1:{port}", "--chdir", SERVICES, "shop:app"]
    with program(port, *command, REDIS_PORT=stack.values["STACK_REDIS_PORT"]) as pid:
        yield ["--pid", pid, "--children"], lambda: load(f"http://127.0.0.1:{port}", "/", "/product/7", "/product/41", rate=100, clients=2)


@contextlib.contextmanager
def aiohttp(stack):
    stack.run("install", "python3-aiohttp", "python3-redis")
    port = free_port()
    with program(port, "/usr/bin/python3", f"{SERVICES}/board.py", str(port), stack.values["STACK_REDIS_PORT"]) as pid:
        yield ["--pid", pid], lambda: load(f"http://127.0.0.1:{port}", "/", "/page/2", rate=200, clients=4)


#: By the name of their files.
TARGETS = {"wordpress": wordpress, "mediawiki": mediawiki, "symfony": symfony, "flask": flask, "aiohttp": aiohttp}


def sheets(options):
    """Writes a recording of each into the folder, and prints its sheet."""
    os.makedirs(options.folder, exist_ok=True)
    stack = Stack("--children", "2", "--object-cache", "redis")
    try:
        for name in options.target or TARGETS:
            with TARGETS[name](stack) as (target, begin):
                # What is done once is not what a service does.
                warm = begin()
                warm.wait()
                asking = begin()
                time.sleep(1)
                file = f"{options.folder}/{name}.slip"
                subprocess.run(
                    [SLIP, "doctor", *map(str, target), "--duration", str(WATCH_S), "--output", file, "--force"],
                    stdout=subprocess.DEVNULL, check=True,
                )
                asking.wait()
            print(f"== {name}", flush=True)
            subprocess.run([SLIP, "doctor", file], check=True)
    finally:
        stack.down()
    return 0
