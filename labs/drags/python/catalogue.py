"""A WSGI service whose master has loaded a catalogue before it forks the workers. The drag is memory: how many bytes of this worker are
its own by now, as the last line of each response says.

`/walk` reads each article, which counts references in each and so writes to it; `/one` reads a single one. With `FREEZE` the master takes
the catalogue out of what the garbage collector visits.
"""

import gc
import os

ARTICLES = 150_000

#: Some 60 MB of objects.
catalogue = [{"id": number, "name": f"article {number}", "price": number * 1.5} for number in range(ARTICLES)]
if os.environ.get("FREEZE"):
    gc.collect()
    gc.freeze()


def own_bytes():
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        fields = dict(line.split(":") for line in file if line.startswith("Private_"))
    return 1024 * sum(int(value.split()[0]) for value in fields.values())


def walk(number):
    """A tenth of the catalogue."""
    return max(article["price"] for article in catalogue[number % 10 :: 10])


def one(number):
    total = 0.0
    for step in range(15_000):
        total += (number + step) * 1.5
    return catalogue[number % ARTICLES]["price"] + total


def app(environ, start_response):
    number = int(environ["QUERY_STRING"].rpartition("n=")[2] or 0)
    {"/walk": walk, "/one": one}.get(environ["PATH_INFO"], lambda number: 0)(number)
    # Asking takes as long as a request; the catalogue is walked to its end soon.
    body = b"done\n%d" % (own_bytes() if number % 16 == 0 or number < 16 else 0)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
