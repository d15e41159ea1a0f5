"""Whether applications notice an extension that they do not use: the same answers, the same CPU per request.

Answers differ by nature: nonces, tokens, times, identifiers of requests. What differs is not listed here but found: the
application without the extension is gone through several times, each time as a new visitor, and where those answers
differ from each other, at a word of a line, any word of the same kind is allowed. All else must be the same, byte by
byte. Once the variants were compared, the one without the extension is compared again: should it fail, the
masks do not cover what differs by nature, and that is what is reported.

CPU is measured in slices that take turns, see bench/snapshot/measure.py.
"""

import argparse
import difflib
import http.client
import itertools
import json
import os
import platform
import random
import re
import statistics
import sys
import time
from urllib.parse import urlencode, urlsplit

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "snapshot"))
# pylint: disable=wrong-import-position
import measure as slices

#: The name in all addresses.
HOST = "apps.example"

#: How often the application without the extension is gone through to find what differs by nature; and how often again if a
#: variant's answers do not fit, before that counts: "0.002 seconds" is the same by chance many times in a row.
REFERENCES = 5
MORE_REFERENCES = 30

#: How often each variant is compared then.
COMPARISONS = 3

#: In the first line of an answer that is not what a visit needs.
WRONG = "but expected"

#: Longest wait for an answer.
ANSWER_LIMIT_S = 60

#: Words and what is between them. Cookies are base64, with its special characters as %2B.
TOKEN = re.compile(r"[A-Za-z0-9%+]+|.", re.DOTALL)


class Step:
    """One request of a visit: `body` are fields of a form, in which {name} stands for what an earlier answer contained."""

    def __init__(self, name, path, body=None, status=200, keep=None):
        self.name, self.path, self.body, self.status, self.keep = name, path, body, status, keep or {}


TOKEN_FIELD = r'name="token" value="([^"]+)"'

VISITS = {
    "wordpress": [
        Step("home", "/"),
        Step("page 2", "/?paged=2"),
        Step("post", "/?p={post}"),
        Step("category", "/?cat=3"),
        Step("search", "/?s=pump"),
        Step("search without result", "/?s=nowhere+to+be+found"),
        Step("REST list", "/?rest_route=/wp/v2/posts&per_page=5"),
        Step("REST index", "/?rest_route=/"),
        Step("feed", "/?feed=rss2"),
        Step("404", "/?p=999999", status=404),
        Step("login form", "/wp-login.php"),
        Step("POST of a wrong login", "/wp-login.php", {"log": "nobody", "pwd": "nothing", "wp-submit": "Log In"}),
        Step("POST of a search", "/", {"s": "valve"}),
        Step("XML-RPC", "/xmlrpc.php", "<methodCall><methodName>demo.sayHello</methodName></methodCall>"),
    ],
    "mediawiki": [
        Step("Main_Page", "/index.php?title=Main_Page"),
        Step("history", "/index.php?title=Main_Page&action=history"),
        Step("difference", "/index.php?title=Main_Page&diff=prev&oldid={revision}"),
        Step("edit form", "/index.php?title=Main_Page&action=edit"),
        Step("POST of a preview", "/index.php?title=Main_Page&action=submit", {
            "wpPreview": "Show preview", "wpTextbox1": "'''Bold''' and [[Gears]]\n{{#expr: 2^10}}", "wpSummary": "a summary",
            "wpEditToken": "+\\",
            "wpUnicodeCheck": "\u2133\U0001d4b2\u2665\U0001d4ca\U0001d4c3\U0001d4be\U0001d4b8\u2134\U0001d4b9\u212f",
        }),
        Step("no such page", "/index.php?title=Valves", status=404),
        Step("login form", "/index.php?title=Special:UserLogin"),
        Step("version", "/index.php?title=Special:Version"),
        Step("all pages", "/index.php?title=Special:AllPages"),
        Step("search", "/index.php?title=Special:Search&search=pump"),
        Step("api: page", "/api.php?action=query&titles=Main_Page&prop=revisions&rvprop=content&rvslots=main&format=json"),
        Step("api: parse", "/api.php?action=parse&page=Main_Page&format=json"),
        Step("api: POST", "/api.php", {
            "action": "parse", "text": "== A ==\n{{#expr: 3 * 3}}", "contentmodel": "wikitext", "format": "json",
        }),
        Step("api: help", "/api.php"),
        Step("start-up module", "/load.php?modules=startup&only=scripts&skin=vector"),
        Step("style", "/load.php?modules=skins.vector.styles.legacy&only=styles&skin=vector"),
    ],
    "phpmyadmin": [
        Step("login page", "/index.php?route=/", keep={"token": TOKEN_FIELD, "session": r'name="set_session" value="([^"]+)"'}),
        Step("POST of a wrong login", "/index.php?route=/", {
            "pma_username": "nobody", "pma_password": "nothing", "server": "1", "token": "{token}", "set_session": "{session}",
        }, keep={"token": TOKEN_FIELD, "session": r'name="set_session" value="([^"]+)"'}),
        Step("POST of the login", "/index.php?route=/", {
            "pma_username": "{user}", "pma_password": "{password}", "server": "1", "token": "{token}", "set_session": "{session}",
        }, status=302),
        Step("server", "/index.php?route=/", keep={"token": r'token:"([^"]+)"'}),
        Step("databases", "/index.php?route=/server/databases"),
        Step("variables", "/index.php?route=/server/collations"),
        Step("tables", "/index.php?route=/database/structure&db=lab"),
        Step("table's structure", "/index.php?route=/table/structure&db=lab&table=items"),
        Step("rows", "/index.php?route=/sql&db=lab&table=items&pos=0"),
        Step("POST of a query", "/index.php?route=/sql", {
            "db": "lab", "table": "items", "sql_query": "SELECT id, name FROM items WHERE stock > 90 ORDER BY id LIMIT 20",
            "token": "{token}",
        }),
        Step("export form", "/index.php?route=/table/export&db=lab&table=items"),
        Step("form of a row", "/index.php?route=/table/change&db=lab&table=items"),
    ],
}

#: Pages that are measured, in turn, and after which steps of the visit.
MEASURED = {
    "wordpress": ["home", "post", "REST list"],
    "mediawiki": ["Main_Page", "history", "api: parse"],
    "phpmyadmin": ["databases", "table's structure", "rows"],
}


class Visitor:
    """A new visitor with cookies."""

    def __init__(self, url, values):
        self.address, self.values, self.cookies = urlsplit(url).netloc, dict(values), {}
        self.steps = {}

    def visit(self, steps):
        """Texts of all answers, by the step's name."""
        return {step.name: self.do(step) for step in steps}

    def do(self, step):
        """Status, headers and body of one answer as one text."""
        path = step.path.format(**self.values)
        self.steps[step.name] = path
        headers, body = {"Host": HOST, "User-Agent": "measure"}, None
        if isinstance(step.body, str):
            body, headers["Content-Type"] = step.body, "text/xml"
        elif step.body:
            body = urlencode({name: value.format(**self.values) if value.startswith("{") and value.count("{") == 1 else value
                              for name, value in step.body.items()})
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        if self.cookies:
            headers["Cookie"] = self.cookie_header()
        connection = http.client.HTTPConnection(self.address, timeout=ANSWER_LIMIT_S)
        connection.request("GET" if body is None else "POST", path, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        connection.close()
        for name, value in answer.getheaders():
            if name.lower() == "set-cookie":
                name, value = value.split(";")[0].split("=", 1)
                self.cookies[name] = value
        for name, pattern in step.keep.items():
            found = re.search(pattern, text)
            if not found:
                return f"{answer.status} {WRONG} with {name}\n{text}"
            self.values[name] = found.group(1)
        # nginx's own: the length of the body shows in the body, and whether it is chunked depends on it.
        own = {"date", "connection", "content-length", "transfer-encoding", "server"}
        lines = [f"{name}: {value}" for name, value in answer.getheaders() if name.lower() not in own]
        note = "" if answer.status == step.status else f" {WRONG} {step.status}"
        return "\n".join([f"{answer.status}{note}", *lines, "", text])

    def cookie_header(self):
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items() if value != "deleted")


class Mask:
    """What all answers of one step have in common, line by line, and what kinds of words differ."""

    def __init__(self, texts):
        self.lines = [[line] for line in texts[0].split("\n")]
        for text in texts[1:]:
            lines = text.split("\n")
            if len(lines) != len(self.lines):
                raise ValueError(f"answers have {len(self.lines)} and {len(lines)} lines: {first_difference(texts[0], text)}")
            for seen, line in zip(self.lines, lines):
                if line not in seen:
                    seen.append(line)
        self.differing = sum(len(seen) > 1 for seen in self.lines)
        self.patterns = [seen[0] if len(seen) == 1 else re.compile(pattern_of(seen), re.DOTALL) for seen in self.lines]

    def mismatch(self, text):
        """None, or what does not fit."""
        lines = text.split("\n")
        for number, (pattern, line) in enumerate(itertools.zip_longest(self.patterns, lines)):
            if pattern is None or line is None:
                return f"{len(lines)} lines instead of {len(self.patterns)}"
            fits = line == pattern if isinstance(pattern, str) else pattern.fullmatch(line)
            if not fits:
                return f"line {number + 1}: {first_difference(self.lines[number][0], line)}"
        return None


def pattern_of(seen):
    """A regular expression for lines that differ in some words: what differs may be any text of the same kinds of characters,
    not longer than twice the longest that was seen."""
    first = TOKEN.findall(seen[0])
    # By place in the first line: what the others have there.
    differing = [False] * (len(first) + 1)
    replaced = [set() for _ in range(len(first) + 1)]
    for other in seen[1:]:
        tokens = TOKEN.findall(other)
        for kind, start, end, other_start, other_end in difflib.SequenceMatcher(None, first, tokens, False).get_opcodes():
            if kind == "equal":
                continue
            for place in range(start, max(end, start + 1)):
                differing[place] = differing[place] or kind != "insert"
            replaced[start].add("".join(tokens[other_start:other_end]))
    parts, place = [], 0
    while place <= len(first):
        if place < len(first) and not differing[place] and not replaced[place]:
            parts.append(re.escape(first[place]))
            place += 1
            continue
        texts, begin = set(replaced[place]), place
        while place < len(first) and differing[place]:
            texts |= replaced[place]
            place += 1
        if texts or place > begin:
            texts.add("".join(first[begin:place]))
            parts.append(kinds_of(texts))
        if place == begin:
            if place < len(first):
                parts.append(re.escape(first[place]))
            place += 1
    return "".join(parts)


def kinds_of(texts):
    """Any text of the kinds of characters that these have."""
    characters = set("".join(texts))
    kinds = "".join(kind for kind, test in (("0-9", str.isdigit), ("a-z", str.islower), ("A-Z", str.isupper))
                    if any(test(character) for character in characters))
    kinds += "".join(re.escape(character) for character in sorted(characters) if not character.isascii() or not character.isalnum())
    longest = 2 * max(map(len, texts))
    shortest = min(1, min(map(len, texts)))
    return f"[{kinds}]{{{shortest},{longest}}}" if kinds else ""


def first_difference(expected, found):
    """The surroundings of the first character that differs."""
    place = next((i for i, (a, b) in enumerate(zip(expected, found)) if a != b), min(len(expected), len(found)))
    start = max(0, place - 60)
    return f"{found[start : place + 100]!r} instead of {expected[start : place + 100]!r}"


class Counts:
    """Checks of a run."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, name, problem):
        if problem is None:
            self.passed += 1
            print(f"ok {name}")
        else:
            self.failed += 1
            print(f"not ok {name}: {problem}")


def compare(application, variants, values, counts):
    """Counts one check for each step of the visit and each variant."""
    steps = VISITS[application]
    name, (url, _) = next(iter(variants.items()))
    Visitor(url, values).visit(steps)
    for other_url, _ in variants.values():
        # Caches that the first visitors fill: opcache, the applications' own.
        for _ in range(2):
            Visitor(other_url, values).visit(steps)
    references = visits(url, steps, values, REFERENCES)
    answers = {other: visits(variants[other][0], steps, values, COMPARISONS) for other in [*list(variants)[1:], name]}
    problems = find_problems(steps, references, answers)
    if any(problems.values()):
        references += visits(url, steps, values, MORE_REFERENCES)
        problems = find_problems(steps, references, answers)
    masks = [mask_of(step, references) for step in steps]
    print(f"# {application}: of {sum(len(mask.lines) for mask in masks if mask)} lines in {len(masks)} answers "
          f"{sum(mask.differing for mask in masks if mask)} differ by nature, in {len(references)} visits")
    for (other, step_name), problem in problems.items():
        counts.check(f"{application} {other}: {step_name}", problem)


def visits(url, steps, values, number):
    """Answers of so many new visitors, so that times differ too."""
    answers = []
    for _ in range(number):
        answers.append(Visitor(url, values).visit(steps))
        time.sleep(0.5)
    return answers


def mask_of(step, references):
    """None if the answers do not even have the same number of lines."""
    try:
        return Mask([reference[step.name] for reference in references])
    except ValueError:
        return None


def find_problems(steps, references, answers):
    """By variant and step, what is wrong, or None."""
    problems = {}
    for step in steps:
        mask = mask_of(step, references)
        for name, visited in answers.items():
            texts = [answer[step.name] for answer in visited]
            if mask is None:
                problem = "without the extension the number of lines differs from visit to visit"
            elif WRONG in references[0][step.name].split("\n", 1)[0]:
                problem = f"not even without the extension: {references[0][step.name][:300]!r}"
            else:
                problem = next(filter(None, map(mask.mismatch, texts)), None)
            problems[name, step.name] = problem
    return problems


class Instance(slices.Variant):
    """A variant with the cookies of somebody who has visited it."""

    def __init__(self, application, name, url, pid, values):
        super().__init__(f"{name}={url}={pid}")
        visitor = Visitor(url, values)
        visitor.visit(VISITS[application])
        self.headers = [f"Cookie: {visitor.cookie_header()}"] if application == "phpmyadmin" else []
        self.paths = {name: visitor.steps[name] for name in MEASURED[application]}

    def expect(self, path):
        status, _ = self.fetch(path, self.headers)
        if status != 200:
            slices.fail(f"{self.name}: {path} is answered with status {status}")


def measure_cpu(application, variants, values, options, counts):
    """Counts one check for each kind of variant: the CPU that a request takes, relative to the first kind.

    Two processes that are started alike differ by up to 1 %, because their memory lies elsewhere. So there are some of each
    kind, and the pairs take turns among them.
    """
    kinds = {}
    for name, (url, pid) in variants.items():
        kinds.setdefault(slices.kind_of(name), []).append(Instance(application, name, url, pid, values))
    processes = min(len(instances) for instances in kinds.values())
    cpu_ns = {kind: [] for kind in kinds}
    draw = random.Random(3)
    for instances in kinds.values():
        for instance in instances:
            for path in instance.paths.values():
                instance.slice(path, 2 * options.slice)
    for pair in range(options.pairs):
        page = MEASURED[application][pair // processes % len(MEASURED[application])]
        for kind in draw.sample(list(kinds), len(kinds)):
            instance = kinds[kind][pair % processes]
            cpu_ns[kind].append(instance.slice(instance.paths[page], options.slice)[0])
        if pair % 50 == 49:
            print(f"{application}: {pair + 1} of {options.pairs} pairs", file=sys.stderr)
    first, *others = kinds
    results = []
    for kind in others:
        ratio, low, high = slices.interval([ours / theirs for ours, theirs in zip(cpu_ns[kind], cpu_ns[first])])
        figures = (f"CPU per request {ratio:.4f} [{low:.4f}, {high:.4f}] of {first}'s "
                   f"({statistics.median(cpu_ns[first]) / 1e6:.2f} ms, {options.pairs} pairs of {options.slice} requests, "
                   f"{processes} processes each)")
        results.append({"application": application, "variant": kind, "ratio": ratio, "low": low, "high": high})
        if kind == "control":
            print(f"# {application} control: {figures}")
        else:
            counts.check(f"{application} {kind}: {figures}", None if high <= options.bar else f"above {options.bar}")
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--instance", action="append", required=True,
                        help="APPLICATION=VARIANT=URL=PID; the first variant of an application is compared with, one that ends "
                             "with a number is another process of the variant without")
    parser.add_argument("--user", required=True, help="of the database; the password is in APPS_DATABASE_PASSWORD")
    parser.add_argument("--pairs", type=int, default=1200, help="slices of each variant; 0: only the answers")
    parser.add_argument("--slice", type=int, default=4, help="requests of a slice")
    parser.add_argument("--bar", type=float, default=1.01, help="highest upper end of the interval")
    parser.add_argument("--json", help="file for the figures")
    options = parser.parse_args()
    slices.HOST = HOST
    applications = {}
    for text in options.instance:
        application, name, url, pid = text.split("=")
        applications.setdefault(application, {})[name] = (url, int(pid))
    values = {"post": "10", "revision": "3", "user": options.user, "password": os.environ["APPS_DATABASE_PASSWORD"]}
    counts, results = Counts(), []
    for application, variants in applications.items():
        first_ones = {name: place for name, place in variants.items() if name == slices.kind_of(name)}
        compare(application, first_ones, values, counts)
        if options.pairs:
            results += measure_cpu(application, variants, values, options, counts)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "kernel": platform.release(),
                       "processor": slices.processor(), "results": results}, file, indent=1)
            file.write("\n")
    print(f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped")
    sys.exit(1 if counts.failed else 0)


if __name__ == "__main__":
    main()
