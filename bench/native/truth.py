"""Compares our stacks with a debugger's, call by call, for `bench/native/run truth`, which see."""

import bisect
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TRUTH = "target/release/examples/native_truth"

#: So many calls of each program are compared.
HITS = 200

#: The functions in which interpreters run what they interpret.
LOOPS = ("execute_ex", "_PyEval_EvalFrameDefault")


def lines_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


@functools.cache
def loads(path):
    """Offset, address and length of each part of a file that is mapped."""
    rows = (line.split() for line in lines_of("readelf", "-lW", path) if line.startswith("  LOAD"))
    return [(int(row[1], 16), int(row[2], 16), int(row[4], 16)) for row in rows]


@functools.cache
def symbols(path):
    """Addresses by name."""
    found = {}
    for line in lines_of("readelf", "-Ws", path):
        row = line.split()
        if len(row) >= 8 and row[3] in ("FUNC", "IFUNC") and row[6] != "UND":
            found[row[7].split("@")[0]] = int(row[1], 16)
    return found


@functools.cache
def functions(path):
    """Begin and end of each function by the file's tables for exceptions, as readelf reads them."""
    pairs = re.findall(r"FDE.* pc=([0-9a-f]+)\.\.([0-9a-f]+)", "\n".join(lines_of("readelf", "-wF", path)))
    return sorted((int(begin, 16), int(end, 16)) for begin, end in pairs)


def with_debug_file(path):
    """A file of the distribution's, and the one that has what was stripped from it, if it is installed."""
    found = re.search(r"Build ID: ([0-9a-f]+)", "\n".join(lines_of("readelf", "-n", path)))
    debug = f"/usr/lib/debug/.build-id/{found[1][:2]}/{found[1][2:]}.debug"
    return [path, debug] if os.path.exists(debug) else [path]


def offset_of(path, name):
    address = symbols(path)[name]
    offset, vaddr, _ = next(load for load in loads(path) if load[1] <= address < load[1] + load[2])
    return address - vaddr + offset


class Mappings:
    def __init__(self, text):
        rows = (line.split() for line in text.splitlines())
        rows = [row for row in rows if len(row) >= 5 and row[0].startswith("0x") and row[-1].startswith("/")]
        self.rows = sorted((int(row[0], 16), int(row[1], 16), int(row[3], 16), row[-1]) for row in rows)

    def place(self, counter):
        """The file that has this address, and which of its own addresses that is."""
        begin, end, offset, path = self.rows[bisect.bisect(self.rows, (counter, 1 << 64)) - 1]
        assert counter < end, hex(counter)
        in_file = counter - begin + offset
        offset, vaddr, _ = next(load for load in reversed(loads(path)) if load[0] // 4096 * 4096 <= in_file)
        return path, in_file - offset + vaddr


def plain(name):
    """A name of C++ without parameters, what it returns, and what the compiler has put behind it."""
    name = re.sub(r" \[clone [^]]*\]", "", name.split("@")[0])
    name = re.sub(r"\.(constprop|isra|part|cold|lto_priv)\b.*", "", name)
    name = name.replace("operator()", "operator").replace("(anonymous namespace)", "anonymous")
    before = None
    while before != name:
        before, name = name, re.sub(r"\([^()]*\)", "", name)
    name, level, parts = name.removesuffix(" const"), 0, [""]
    for letter in name:
        level += (letter in "<{") - (letter in ">}")
        if letter == " " and level == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts[-1].replace(" ", "")


def native_name(mappings, frame, is_innermost):
    """How we ought to call a frame of the debugger's."""
    name, counter = frame
    if name:
        return plain(name)
    path, address = mappings.place(counter - (not is_innermost))
    begins = functions(path)
    begin, end = begins[bisect.bisect(begins, (address, 1 << 64)) - 1]
    assert begin <= address < end, (path, hex(address))
    return f"{os.path.basename(path)}+{begin:#x}"


def expected(mappings, stack, calls):
    """The debugger's stack, the outermost first, with what the interpreter itself said in the place of its loops."""
    runs = []
    for name, has_caller in reversed(calls):
        if not runs or not has_caller:
            runs.append([])
        runs[-1].append(name)
    runs = iter(runs)
    found = []
    for at, frame in reversed(list(enumerate(stack))):
        name = native_name(mappings, frame, at == 0)
        if name in LOOPS:
            found.extend(next(runs))
        else:
            found.append(name)
    assert next(runs, None) is None, (calls, found)
    return found


def same(ours, theirs):
    if plain(ours) == plain(theirs):
        return True
    # Two names of one function.
    known = [symbols(path) for path in with_debug_file("/lib/x86_64-linux-gnu/libc.so.6")]
    return any(ours in names and names[ours] == names.get(theirs) for names in known)


def compare(title, command, function, path, loops):
    """Has both look at a program that runs twice, and compares what they saw."""
    with tempfile.TemporaryDirectory() as folder:
        at = functools.partial(os.path.join, folder)
        environment = dict(os.environ, PYTHONHASHSEED="0", OPENBLAS_NUM_THREADS="1")
        with open(at("input"), "w", encoding="utf-8") as lines:
            lines.write("go\nend\n")
        arguments = shlex.join([*command[1:], at("log")])
        wanted = {
            "function": function, "hits": HITS, "arguments": arguments, "input": at("input"), "output": at("theirs")
        }  # fmt: skip
        subprocess.run(
            ["gdb", "-nx", "-batch", "-x", f"{HERE}/debugger.py", command[0]],
            check=True, capture_output=True, env=dict(environment, TRUTH=json.dumps(wanted)),
        )  # fmt: skip
        with open(at("theirs"), encoding="utf-8") as file:
            theirs = json.load(file)
        ours = subprocess.run(
            [TRUTH, path, str(offset_of(path, wanted_symbol(path, function))), *command, at("log")],
            check=True, capture_output=True, text=True, env=environment,
        )  # fmt: skip
        calls = [[]] * HITS
        if loops:
            with open(at("log"), encoding="utf-8") as log:
                calls = [loops(json.loads(line)) for line in log]
    mappings = Mappings(theirs["maps"])
    stacks = [json.loads(line) for line in ours.stdout.splitlines()]
    equal = deepest = 0
    for number, stack in enumerate(theirs["hits"][:HITS]):
        wanted = expected(mappings, stack, calls[number])
        found = stacks[number] if number < len(stacks) else []
        is_same = len(found) == len(wanted) and all(map(same, found, wanted))
        if not is_same and equal == number:
            print(f"{title}: call {number + 1}:\n  ours   {found}\n  theirs {wanted}", file=sys.stderr)
        equal += is_same
        deepest = max(deepest, len(wanted))
    kinds = len({json.dumps(stack) for stack in stacks[:HITS]})
    print(f"{title}: {equal} of {HITS} stacks are the debugger's; {kinds} different ones, up to {deepest} functions deep;"
          f" {ours.stderr.strip()}", flush=True)  # fmt: skip
    return title, equal, kinds, deepest


def wanted_symbol(path, function):
    """The symbol of a function of C++ has its name and length in it."""
    names = symbols(path)
    parts = "".join(f"{len(part)}{part}" for part in function.split("::"))
    return function if function in names else next(name for name in names if parts in name)


#: Functions of `calls.php` that the engine calls for an instruction of their caller's: generators, and what makes a string of an object.
PHP_ENTRIES = ("numbers", "all", "Shop::__toString")


def php_calls(calls):
    """What PHP says of its calls, the innermost first, with the function of its own that runs. One that a function of PHP itself has called has
    no place where it was called."""
    calls = [[name, has_caller and name not in PHP_ENTRIES] for name, has_caller in calls]
    return [["preg_match", True]] + calls + [["{main}", False]]


def main():
    program = os.path.abspath("target/native-calls")
    subprocess.run(["g++", "-O2", "-o", program, f"{HERE}/calls.cpp"], check=True)
    php, python = "/usr/bin/php8.2", "/usr/bin/python3.11"
    blas = os.path.realpath("/usr/lib/x86_64-linux-gnu/libblas.so.3")
    results = [
        compare("C++", [program], "shop::Cart::total", program, None),
        compare("Python in numpy", [python, f"{HERE}/calls.py"], "cblas_dgemm", blas, list),
        compare("PHP in preg_match", [php, "-n", f"{HERE}/calls.php"], "php_pcre_match_impl", php, php_calls),
    ]
    said = (f"{title} {equal} of {HITS}, {kinds} different ones, up to {deepest} functions deep" for title, equal, kinds, deepest in results)
    print(f"result: stacks that are the debugger's: {'; '.join(said)}")
    return 0 if all(equal == HITS for _, equal, _, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
