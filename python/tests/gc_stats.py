"""Reads what the process PID, which `gc_target.py` runs in, has collected, and compares it with the report on standard input."""

import json
import os
import subprocess
import sys

import slipstream

pid = int(sys.argv[1])
report = json.load(sys.stdin)

try:
    stats = slipstream.get_gc_stats(pid)
except RuntimeError as error:
    # CPython 3.14 says less of itself.
    assert "before 3.15" in str(error), error
    assert "candidates" not in report["stats"][0], report
    sys.exit()

assert [entry.gen for entry in stats] == [0] * 11 + [1] * 3 + [2] * 3, stats
assert {entry.iid for entry in stats} == {0}, stats
assert isinstance(stats[0], slipstream.GCStatsInfo)
for generation, expected in enumerate(report["stats"]):
    newest = max((entry for entry in stats if entry.gen == generation), key=lambda entry: entry.collections)
    for name, value in expected.items():
        assert getattr(newest, name) == value, (generation, name, newest, expected)
    assert 0 < newest.ts_start < newest.ts_stop, newest

of_all = slipstream.get_gc_stats(pid, all_interpreters=True)
assert [entry.iid for entry in of_all] == [report["other"]] * 17 + [0] * 17, of_all
assert of_all[17:] == stats
newest = max((entry for entry in of_all[:17] if entry.gen == 1), key=lambda entry: entry.collections)
assert newest.collections == 4 and newest.collected >= 100, newest

if sys.version_info >= (3, 15):
    import _remote_debugging

    # It finds only what runs in its own mounts.
    program = os.path.join(os.path.dirname(__file__), "gc_target.py")
    target = subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    target.stdout.readline()
    for of_all in (False, True):
        stats = slipstream.get_gc_stats(target.pid, all_interpreters=of_all)
        assert _remote_debugging.get_gc_stats(target.pid, all_interpreters=of_all) == stats
        assert type(stats[0]) is _remote_debugging.GCStatsInfo
    target.kill()
    target.wait()
