"""Breaks its own structures, as its first argument says, and waits."""

import ctypes
import os
import sys

CASE = sys.argv[1]
KEPT = []


def word(address):
    return ctypes.c_uint64.from_address(address)


def find(begin, value, count):
    """Where the first of `count` words from `begin` lies that holds `value`."""
    return next(at for at in range(begin, begin + 8 * count, 8) if word(at).value in (value, value | 1))


def inner(frame):
    """The interpreter's own frame behind a frame object: the word after `f_back`. Before 3.11 they are the same."""
    return word(id(frame) + 24).value if sys.version_info >= (3, 11) else id(frame)


def kept(thing):
    KEPT.append(thing)
    return id(thing)


def sized(thing, length):
    """An object of its own with a false length."""
    word(id(thing) + 16).value = length
    return kept(thing)


def copied(text):
    return "".join(list(text))


class Victim:
    @staticmethod
    def victim():
        frame, code = sys._getframe(), Victim.victim.__code__
        here, there = inner(frame), inner(frame.f_back)
        further = inner(frame.f_back.f_back)
        previous = find(here, there, 12)
        executable = find(here, id(code), 12)
        qualname = find(id(code), id(getattr(code, "co_qualname", code.co_name)), 40)
        filename = find(id(code), id(code.co_filename), 40)
        lines = code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab
        table = find(id(code), id(lines), 40)
        state = ctypes.pythonapi.PyThreadState_Get
        state.restype = ctypes.c_void_p
        thread = state()
        kind, _, number = CASE.partition("=")
        number = int(number or "0", 0)
        target, value = {
            "frame is its own caller": lambda: (previous, here),
            "frames in a circle": lambda: (find(there, further, 12), here),
            "caller": lambda: (previous, number),
            "caller between two words": lambda: (previous, here + 1),
            "code": lambda: (executable, number),
            "name of length": lambda: (qualname, sized(copied("victim"), number)),
            "path of length": lambda: (filename, sized(copied("/victim.py"), number)),
            "lines of length": lambda: (table, sized(bytes(bytearray(lines)), number)),
            "lines of noise": lambda: (table, kept(b"\xff" * 64)),
            "lines of another type": lambda: (table, kept(1 << 70)),
            "name with escapes": lambda: (
                qualname,
                kept("\x1b]0;title\x07\x1b[31mred\nprocess 1: forged\r\x9b31m\u202e\x7f"),
            ),
            "path with escapes": lambda: (filename, kept("/\x1b[2J\n\x9b\u202e.py")),
            "name of lone surrogates": lambda: (qualname, kept("\ud800\udfff alone")),
            "name of 16 MiB": lambda: (qualname, kept("x" * (1 << 24))),
            "thread is its own successor": lambda: (thread + 8, thread),
            "next thread": lambda: (thread + 8, number),
        }[kind]()
        # From here on nothing may be used that lies in what is broken: no constant, no global name.
        write, output, ready, wait, cell = os.write, 1, b"ready\n", sys.stdin.readline, word(target)
        change = cell.__class__.__setattr__
        attribute = "value"
        change(cell, attribute, value)
        write(output, ready)
        wait()


def outer():
    Victim.victim()


def main():
    outer()


main()
