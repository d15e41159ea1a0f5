"""Whether what samples say of an application's boot is what a clock inside of it says."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading

from fastcgi import FastCgi
from lab import SYMFONY, Lab, Stack
from sums import PAGES, Http

SLIP = os.environ.get("SLIP", "target/release/slip")

#: Notes the CPU time of each request of PHP: all of it from the first line on, and that between `slip_boots` and `slip_booted`.
PREPEND = """<?php
function slip_cpu_us() {
    $used = getrusage();
    return 1000000 * ($used["ru_utime.tv_sec"] + $used["ru_stime.tv_sec"]) + $used["ru_utime.tv_usec"] + $used["ru_stime.tv_usec"];
}
function slip_boots() {
    $GLOBALS["slip_boots"] = slip_cpu_us();
}
function slip_booted() {
    $GLOBALS["slip_boot"] += slip_cpu_us() - $GLOBALS["slip_boots"];
}
$GLOBALS["slip_boot"] = 0;
$GLOBALS["slip_begun"] = $GLOBALS["slip_boots"] = slip_cpu_us();
register_shutdown_function(function () {
    register_shutdown_function(function () {
        $times = [$GLOBALS["slip_boot"], slip_cpu_us() - $GLOBALS["slip_begun"]];
        file_put_contents("%s", implode(" ", $times) . "\\n", FILE_APPEND | LOCK_EX);
    });
});
"""

#: The last that WordPress does before it comes to the request.
PLUGIN = """<?php
add_action("wp_loaded", "slip_booted", PHP_INT_MAX);
"""

#: The lab's usual front controller, with the kernel booted before it handles the request.
FRONT = """<?php
use Journal\\Kernel;
use Symfony\\Component\\HttpFoundation\\Request;

slip_boots();
require __DIR__.'/../src/autoload.php';
slip_booted();
$kernel = new Kernel('prod', false);
slip_boots();
$kernel->boot();
slip_booted();

$request = Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
"""


def clock(folder, name):
    """The path of a file that notes times, and of what they are noted in."""
    prepend, times = f"{folder}/{name}.php", f"{folder}/{name}"
    for path, text in (prepend, PREPEND % times), (times, ""):
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o666)
    return prepend, times


@contextlib.contextmanager
def wordpress(folder):
    prepend, times = clock(folder, "wordpress")
    stack = Stack("--children", "2", "--fpm-arg", f"-dauto_prepend_file={prepend}")
    try:
        stack.run("seed")
        plugin = f"{stack.folder}/www/wp-content/mu-plugins/slip-clock.php"
        with open(plugin, "w") as file:
            file.write(PLUGIN)
        os.chmod(plugin, 0o644)
        target = ["--fpm", stack.values["STACK_FPM_POOL"], "--fpm-master", stack.values["STACK_FPM_PID"]]
        yield Http(stack, "--target", "wordpress"), target, times
    finally:
        stack.down()


@contextlib.contextmanager
def symfony(folder):
    prepend, times = clock(folder, "symfony")
    lab = Lab(SYMFONY, "SLIP_SYMFONY_DIR", f"plain=plain.php,auto_prepend_file={prepend}")
    try:
        front = f"{lab.folder}/app/public/clock.php"
        with open(front, "w") as file:
            file.write(FRONT)
        os.chmod(front, 0o644)
        load = FastCgi(f"{lab.folder}/php/plain.sock", front, PAGES)
        yield load, ["--pid", lab.values["SYMFONY_PLAIN_WORKER_PID"]], times
    finally:
        lab.down()


def compare(load, target, times, seconds):
    """What samples say, their interval, and what the clock says: shares of the boot in the CPU's time."""
    load.run(2, 2)
    with open(times, "w"):
        pass
    loading = threading.Thread(target=load.run, args=(2, seconds + 3))
    loading.start()
    file = f"{times}.slip"
    subprocess.run([SLIP, "record", "--quiet", *target, "--budget", "--duration", str(seconds), "--output", file], check=True)
    loading.join()
    shown = subprocess.run([SLIP, "budget", file, "--format", "json"], check=True, stdout=subprocess.PIPE, text=True)
    boot = json.loads(shown.stdout)["boot"]
    with open(times) as lines:
        noted = [tuple(map(int, line.split())) for line in lines]
    return boot, sum(boot_us for boot_us, _ in noted) / sum(all_us for _, all_us in noted), len(noted)


def boot(options):
    folder = tempfile.mkdtemp(prefix="slip-boot.", dir="/var/tmp")
    os.chmod(folder, 0o777)
    parts, failed = [], []
    try:
        for name, lab in ("WordPress", wordpress), ("Symfony", symfony):
            if options.service and name.lower() not in options.service:
                continue
            with lab(folder) as service:
                found, inside, requests = compare(*service, options.seconds)
            if not found or not found["share_of_code"]:
                sys.exit(f"error: no share is told: {found}")
            low, high = found["interval_95"]
            share = found["share_of_code"]
            parts.append(f"{name}: {100 * share:.1f} % [{100 * low:.1f}, {100 * high:.1f}] by {found['samples']} samples, {100 * inside:.1f} % inside, {requests} requests")
            print(parts[-1], flush=True)
            # What is told is an estimate, whose interval holds 19 times in 20.
            if not low - 0.03 <= inside <= high + 0.03:
                failed.append(name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"result: {'; '.join(parts)}{'; not: ' + ', '.join(failed) if failed else ''}")
    return 1 if failed else 0
