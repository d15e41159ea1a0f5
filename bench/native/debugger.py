"""Runs in gdb: stops at each call of a function and writes the stack, for `truth.py`."""

import json
import os

import gdb  # pylint: disable=import-error

#: Deepest stack that is written.
MOST = 400

wanted = json.loads(os.environ["TRUTH"])
hits = []


def frames():
    """Name and program counter of each frame, the innermost first."""
    found, frame = [], gdb.newest_frame()
    while frame is not None and len(found) < MOST:
        found.append([frame.name(), frame.pc()])
        frame = frame.older()
    return found


for setting in ("pagination off", "confirm off", "breakpoint pending on", "backtrace past-main on", "height 0"):
    gdb.execute(f"set {setting}")
gdb.execute("set debuginfod enabled off")
breakpoint_at = gdb.Breakpoint(wanted["function"])
gdb.execute(f"run {wanted['arguments']} < {wanted['input']} > /dev/null")
maps = ""
while gdb.selected_inferior().pid and len(hits) < wanted["hits"]:
    maps = maps if len(hits) % 100 else gdb.execute("info proc mappings", to_string=True)
    hits.append(frames())
    gdb.execute("continue")
with open(wanted["output"], "w", encoding="utf-8") as output:
    json.dump({"hits": hits, "maps": maps}, output)
gdb.execute("kill") if gdb.selected_inferior().pid else None
gdb.execute("quit")
