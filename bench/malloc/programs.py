"""Real programs with libslipmalloc preloaded, beside its peers. `bench/malloc/run programs`.

All allocators run in turns, the order turned by one in each round. What a program writes must be the same with all. A ratio is the median of the
ratios of the rounds, with the interval that holds it with 95 %, by order; it is to the best peer. CPU time and peak memory are those of the
program and its children; of servers the CPU time from their start to their end, and the memory of their processes together, each at its peak.
"""

import argparse
import contextlib
import hashlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import preload
import suite

sys.path.insert(0, f"{preload.REPOSITORY}/bench/lib")
from fastcgi import FastCgi  # noqa: E402

#: Most for that of the best peer.
BAR = 1.03

PATIENCE_S = 30
REDIS = ["redis-benchmark", "-q", "-n", "100000", "-c", "20", "-P", "16", "-r", "100000", "-d", "200", "-t", "set,get,lpush,lrange_100,hset"]

PYTHON = """
import json, re, collections
text = json.dumps([{"id": n, "name": "user %d" % n, "tags": ["a%d" % (n % 7), "b"] * 3, "score": n / 7} for n in range(4000)])
total = 0
for turn in range(6):
    users = json.loads(text)
    by = collections.defaultdict(list)
    for user in users:
        by[user["tags"][0]].append({**user, "name": re.sub(r"user (\\d+)", r"u\\1", user["name"]).upper()})
    total += sum(len(json.dumps(group)) for group in by.values())
print(total)
"""

PHP = """
$total = 0;
for ($turn = 0; $turn < 12; $turn++) {
    $users = [];
    for ($n = 0; $n < 6000; $n++) {
        $users[] = ["id" => $n, "name" => "user " . $n, "tags" => ["a" . ($n % 7), "b"], "score" => $n / 7];
    }
    $users = json_decode(json_encode($users), true);
    usort($users, fn($a, $b) => strcmp($a["name"], $b["name"]));
    foreach ($users as $user) {
        $total += strlen(preg_replace("/user (\\\\d+)/", "u$1", $user["name"]));
    }
    $document = new DOMDocument();
    $document->loadXML("<r>" . str_repeat("<u a='1'>x</u>", 3000) . "</r>");
    $total += $document->getElementsByTagName("u")->length;
}
echo $total, "\\n";
"""

#: Requests to php-fpm for the same.
FPM_REQUESTS = 24
SLAP = ["--auto-generate-sql", "--auto-generate-sql-load-type=mixed", "--auto-generate-sql-add-autoincrement", "--number-int-cols=4", "--number-char-cols=4",
        "--concurrency=4", "--number-of-queries=4000"]

CXX = """
#include <map>
#include <regex>
#include <string>
#include <unordered_map>
int main() { std::map<std::string, std::unordered_map<int, std::string>> m; m["a"][1] = "b"; return std::regex_match("x", std::regex("y")) + (int)m.size(); }
"""


def commands(folder):
    """Command and further variables of each program that ends by itself."""
    source = f"{folder}/program.cc"
    with open(source, "w") as file:
        file.write(CXX)
    return {
        "python": (["/usr/bin/python3", "-c", PYTHON], {"PYTHONMALLOC": "malloc"}),
        "python3.15": (["/usr/bin/python3.15", "-c", PYTHON], {"PYTHONMALLOC": "malloc"}),
        "php": (["php8.2", "-r", PHP], {}),
        "php-malloc": (["php8.2", "-r", PHP], {"USE_ZEND_ALLOC": "0"}),
        "git": (["git", "-C", preload.REPOSITORY, "log", "--stat", "-n", "60"], {}),
        "c++": (["g++", "-std=c++17", "-O1", "-S", "-o", "-", source], {}),
    }


def root_of(path):
    """The root folder that has a program: the system's, or the one of `fixtures/roots` for Python; None if neither has it."""
    found = subprocess.run([f"{preload.REPOSITORY}/fixtures/roots/roots", "path", "python"], capture_output=True, text=True)
    roots = ["", *([found.stdout.strip()] if found.returncode == 0 else [])]
    return next((root for root in roots if os.path.exists(root + path)), None)


@contextlib.contextmanager
def in_root(command, library):
    """What the command has to follow, and the library where it is found from there."""
    root = root_of(command[0]) if command[0].startswith("/") else ""
    if not root:
        yield [], library
        return
    with tempfile.TemporaryDirectory(dir=f"{root}/var/tmp") as folder:
        yield ["chroot", root], library and shutil.copy(library, folder).removeprefix(root)


def run_program(command, variables, library, folder):
    """Seconds of CPU, the peak of resident memory in kB, what it wrote."""
    with in_root(command, library) as (before, found), open(f"{folder}/output", "w+b") as output:
        preloaded = [f"LD_PRELOAD={found}"] if found else []
        # By a small program: the peak of a child begins with what its parent had.
        timed = ["/usr/bin/time", "-q", "-o", f"{folder}/peak", "-f", "%M", *before, "/usr/bin/env", *preloaded, *command]
        child = subprocess.Popen(timed, env=preload.environment(None) | variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE)
        error = child.stderr.read().decode(errors="replace")
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        written = hashlib.sha256(output.read()).hexdigest()
    if child.returncode != 0:
        raise suite.Left(f"status {child.returncode}: {(error.strip().splitlines() or ['no message'])[-1]}")
    # Of a program that cannot have it, the loader says so and goes on without.
    if "cannot be preloaded" in error:
        raise suite.Left(error.strip().splitlines()[0])
    with open(f"{folder}/peak") as file:
        return usage.ru_utime + usage.ru_stime, int(file.read().split()[-1]), written


class Redis:
    stop = signal.SIGTERM

    def __init__(self, folder):
        self.socket = f"{folder}/redis.sock"
        self.command = ["redis-server", "--port", "0", "--unixsocket", self.socket, "--save", "", "--dir", folder]

    def ask(self):
        asked([*REDIS, "-s", self.socket])


class MariaDb:
    stop = signal.SIGTERM

    def __init__(self, folder):
        self.socket = f"{folder}/mariadb.sock"
        asked(["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={folder}/data", "--auth-root-authentication-method=normal", "--skip-test-db"])
        self.command = ["mariadbd", "--no-defaults", "--user=root", "--skip-networking", f"--datadir={folder}/data", f"--socket={self.socket}",
                        f"--pid-file={folder}/pid"]

    def ask(self):
        asked(["mariadb-slap", "--no-defaults", "--user=root", f"--socket={self.socket}", *SLAP])


class Fpm:
    """With all extensions that the distribution has it load."""

    stop = signal.SIGQUIT

    def __init__(self, folder):
        self.socket, self.script = f"{folder}/fpm.sock", f"{folder}/index.php"
        with open(self.script, "w") as file:
            file.write("<?php " + PHP)
        with open(f"{folder}/fpm.conf", "w") as file:
            file.write(f"[global]\nerror_log = {folder}/log\n[pool]\nlisten = {self.socket}\nuser = root\ngroup = root\npm = static\npm.max_children = 2\n")
        self.command = ["php-fpm8.2", "--nodaemonize", "--allow-to-run-as-root", "--fpm-config", f"{folder}/fpm.conf"]

    def ask(self):
        pool = FastCgi(self.socket, self.script, ["/"])
        for _ in range(FPM_REQUESTS):
            pool.ask(pool.messages[0])


SERVERS = {"redis": Redis, "mariadb": MariaDb, "php-fpm": Fpm}

#: What has to be installed for programs, beside the first word of their commands.
NEEDED = {"redis": ["redis-server", "redis-benchmark"], "mariadb": ["mariadbd", "mariadb-install-db", "mariadb-slap"], "php-fpm": ["php-fpm8.2"]}


def asked(command):
    ran = subprocess.run(command, env=preload.environment(None), capture_output=True, text=True, timeout=suite.MOST_S)
    if ran.returncode:
        raise suite.Left(f"{command[0]}: {(ran.stderr.strip().splitlines() or ['no message'])[-1]}")


def run_server(kind, library):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        server = SERVERS[kind](folder)
        child = subprocess.Popen(server.command, env=preload.environment(library), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + PATIENCE_S
            while not os.path.exists(server.socket):
                if time.monotonic() > end or child.poll() is not None:
                    raise suite.Left("the server did not start")
                time.sleep(0.01)
            server.ask()
            with open(f"/proc/{child.pid}/task/{child.pid}/children") as file:
                peak_kb = sum(peak_of(pid) for pid in [child.pid, *file.read().split()])
        finally:
            if child.returncode is None:
                child.send_signal(server.stop)
                _, status, usage = os.wait4(child.pid, 0)
                child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            raise suite.Left(f"the server ended with {child.returncode}")
        return usage.ru_utime + usage.ru_stime, peak_kb, ""


def peak_of(pid):
    """kB."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def measure_all(programs, allocators, rounds, folder):
    found = {program: {name: ([], []) for name in allocators} for program in programs}
    wrote, failures, names = {}, [], list(allocators)
    for number in range(rounds):
        turn = number % len(names)
        for program in programs:
            for name in names[turn:] + names[:turn]:
                if name not in found[program]:
                    continue
                preload.back_memory(suite.USUAL_BACKED_MB)
                try:
                    if program in SERVERS:
                        cpu_s, peak_kb, written = run_server(program, allocators[name])
                    else:
                        cpu_s, peak_kb, written = run_program(*programs[program], allocators[name], folder)
                    if wrote.setdefault(program, written) != written:
                        raise suite.Left("it wrote something else")
                except (suite.Left, OSError, subprocess.TimeoutExpired) as reason:
                    preload.skip(f"{program} with {name}", reason)
                    del found[program][name]
                    failures += [f"{program} with ours: {reason}"] if name == suite.OURS else []
                    continue
                found[program][name][0].append(cpu_s)
                found[program][name][1].append(peak_kb)
    return found, failures


def main(values):
    peers = ["glibc", *preload.PACKAGES, *preload.BUILT]
    parser = argparse.ArgumentParser(prog="run programs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11, metavar="N", help="default 11; fewer than 7 tell little")
    names = ["python", "python3.15", "php", "php-malloc", "git", "c++", *SERVERS, *peers]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"may be repeated: {', '.join(names)}")
    arguments = parser.parse_args(values)
    only = set(arguments.only or [])
    compared = suite.allocators(only.intersection(peers) or peers)
    with tempfile.TemporaryDirectory() as folder:
        all_programs = commands(folder) | dict.fromkeys(SERVERS)
        programs = {name: all_programs[name] for name in all_programs if name in only} or all_programs
        for name in list(programs):
            needed = NEEDED.get(name) or programs[name][0][:1]
            absent = [word for word in needed if not (shutil.which(word) or word.startswith("/") and root_of(word) is not None)]
            if absent:
                preload.skip(name, f"{absent[0]} is not installed")
                del programs[name]
        found, failures = measure_all(programs, compared, arguments.rounds, folder)
    for program, results in found.items():
        print(f"{program}\n{'':>14}{'CPU s':>9}{'peak MB':>9}")
        for name, (cpu, peak) in results.items():
            print(f"{name:>14}{statistics.median(cpu):9.3f}{statistics.median(peak) / 1024:9.1f}", flush=True)
    bars = suite.Bars()
    measured = {program: results for program, results in found.items() if suite.OURS in results}
    bars.each(measured, "CPU time of the best peer's", BAR, suite.cpu_ratio)
    bars.each(measured, "memory of the best peer's", BAR, memory_ratio)
    print(f"result: {len(failures)} failures{''.join(f', {failure}' for failure in failures)}; {'; '.join(bars.parts)}")
    return bars.holds and not failures


def memory_ratio(results):
    peer = suite.best_peers(results, 1)[0]
    return suite.ratios(results[suite.OURS][1], results[peer][1]), peer
