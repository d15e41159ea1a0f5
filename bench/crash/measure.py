"""Kills a recorder again and again and opens what it leaves behind."""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

TARGET = """
import sys
def spin(n):
    return sum(i * i for i in range(n))
print("ready", flush=True)
while True:
    spin(1000)
"""
RATE_HZ = 997
#: What a crash may lose.
LOSS_NS = 1_000_000_000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--slip", required=True)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    draw = random.Random()
    target = subprocess.Popen([os.environ.get("PYTHON", "/usr/bin/python3"), "-c", TARGET], stdout=subprocess.PIPE)
    target.stdout.readline()
    bad, worst_ms = [], 0.0
    try:
        with tempfile.TemporaryDirectory() as folder:
            for round_number in range(options.rounds):
                file = f"{folder}/{round_number}.slip"
                command = [options.slip, "record", "--pid", str(target.pid), "--sampler", "outside", "--rate", str(RATE_HZ), "--output", file]
                recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                while not os.path.exists(file) or os.path.getsize(file) == 0:
                    time.sleep(0.001)
                began = time.monotonic_ns()
                time.sleep(draw.uniform(0.2, 3.0))
                alive_ns = time.monotonic_ns() - began
                recorder.send_signal(signal.SIGKILL)
                recorder.wait()
                report = subprocess.run([options.slip, "report", file, "--format", "json"], capture_output=True, check=False)
                if report.returncode not in (0, 6):
                    bad.append(f"round {round_number}: {report.stderr.decode().strip()}")
                    continue
                summary = json.loads(report.stdout)
                quality, covered_ns = summary["quality"], summary["wall_ns"]
                lost_ns = max(0, alive_ns - covered_ns)
                worst_ms = max(worst_ms, lost_ns / 1e6)
                expected = covered_ns * RATE_HZ // 1_000_000_000 - quality["ticks_missed"] - quality["samples_torn"] - 2
                if lost_ns > LOSS_NS or quality["samples"] < expected:
                    bad.append(f"round {round_number}: alive {alive_ns / 1e6:.0f} ms, covered {covered_ns / 1e6:.0f} ms, {quality}")
    finally:
        target.kill()
    for line in bad:
        print(line, file=sys.stderr)
    print(f"result: {options.rounds - len(bad)} of {options.rounds} files open with all samples but at most the last {worst_ms:.0f} ms")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
