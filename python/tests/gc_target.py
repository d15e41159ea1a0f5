"""A process whose garbage collections are counted: says what each interpreter of it has collected, and waits."""

import gc
import json
import sys

WORK = """
import gc
gc.disable()
class Node:
    pass
def garbage(count):
    for _ in range(count):
        node = Node()
        node.itself = node
for turn in range(1, 15):
    garbage(turn)
    gc.collect(0)
for turn in range(1, 5):
    garbage(10 * turn)
    gc.collect(1)
garbage(100)
gc.collect()
"""

gc.disable()
exec(WORK)
other = None
if sys.version_info >= (3, 14):
    from concurrent import interpreters

    other = interpreters.create()
    other.exec(WORK)
report = {"stats": gc.get_stats(), "other": other.id if other else None}
print(json.dumps(report), flush=True)
sys.stdin.buffer.raw.read(1)
