"""Has numpy multiply matrices from plain calls, from callbacks of its own and of sorted(), and from generators; says of each product which
functions Python itself takes to be running, in the file that is its argument. Those that C calls say so by their names."""

import json
import sys

import numpy

log = open(sys.argv[1], "w")
matrix = numpy.eye(8)


def multiply():
    frame, calls = sys._getframe(), []
    while frame:
        name = frame.f_code.co_qualname
        calls.append([name, "called_by_c" not in name and name not in ("<module>", "pairs")])
        frame = frame.f_back
    print(json.dumps(calls), file=log)
    return matrix @ matrix


def descend(depth):
    return descend(depth - 1) if depth else multiply()


def called_by_c_as_key(value):
    multiply()
    return -value


class Price:
    def called_by_c(self, other):
        descend(2)
        return True

    __lt__ = called_by_c


def pairs(count):
    for number in range(count):
        multiply()
        yield number


def main():
    for turn in range(25):
        descend(turn % 17)
        numpy.array([Price(), Price(), Price()], dtype=object).sort()
        sorted([1, 2, 3], key=called_by_c_as_key)
        sorted([Price(), Price()])
        list(pairs(2))


print("ready", flush=True)
sys.stdin.readline()
main()
log.close()
print("done", flush=True)
sys.stdin.readline()
