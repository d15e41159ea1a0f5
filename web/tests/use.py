#!/usr/bin/env python3
"""Uses the report's page as a person does, in Chromium: use.py SLIP

Pages are of real recordings (fixtures/recordings). Prints `ok NAME` or `not ok NAME: …` for each test and a line of counts at the end."""

import json
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "web"))
import browser  # noqa: E402

RECORDINGS = REPOSITORY / "fixtures/recordings"
# How many colours there are on a canvas.
INK = """(id) => {
  const canvas = document.getElementById(id);
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const colours = new Set();
  for (let at = 0; at < data.length; at += 4) colours.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
  return colours.size;
}"""


class Tests:
    """The pages, and a browser to use them."""

    def __init__(self, slip, folder, opened):
        self.folder, self.opened, self.slip = folder, opened, slip
        self.errors, self.requests = [], []
        self.pages = []

    def make(self, name, *options):
        page = self.folder / f"{name}-{len(options)}.html"
        if not page.exists():
            command = [self.slip, "report", "--format", "html", RECORDINGS / f"{name}.slip", "-o", page, *options]
            subprocess.run(command, check=True)
        return page

    def open(self, name, *options, **context):
        settings = {"viewport": {"width": 1280, "height": 720}, "reduced_motion": "reduce", **context}
        page = self.opened.new_context(**settings).new_page()
        browser.watch(page, self.errors, self.requests)
        page.goto(self.make(name, *options).as_uri())
        self.pages.append(page)
        return page

    # ---- tests

    def first_screen_needs_no_script(self):
        page = self.open("wordpress", java_script_enabled=False)
        assert page.locator("h2", has_text="Where a request goes").is_visible()
        assert page.locator(".bar").first.bounding_box()["y"] < 300
        assert page.locator(".finding").first.is_visible()
        assert not page.locator("#requests").is_visible()

    def budget_and_findings_are_those_of_the_doctor(self):
        page = self.open("wordpress")
        said = subprocess.run([self.slip, "doctor", RECORDINGS / "wordpress.slip"], capture_output=True, text=True, check=True).stdout
        rules = re.findall(r"^\d+\s+([A-Z]+\d+)  ", said, re.M)
        shown = page.locator(".finding > h3 > code").all_text_contents()
        assert shown == rules, (shown, rules)
        lines = re.findall(r"^  ([A-Z]+) +([\d.]+ \S+) +([\d.]+ %)", said, re.M)
        rows = page.locator(".budget > table tbody tr")
        shown = [tuple(rows.nth(row).locator("th, td.n").all_text_contents()) for row in range(rows.count())]
        assert shown == lines, (shown, lines)
        shares = [float(share.split()[0]) for _, _, share in shown]
        assert abs(sum(shares) - 100) < 0.05, shares
        # A line leads to its finding.
        page.locator(".legend a").first.click()
        page.locator(".finding:target details summary").first.click()
        assert page.locator(".finding:target h4", has_text="Evidence").is_visible()

    def a_click_on_a_wait_shows_stack_server_and_cause(self):
        page = self.open("wordpress")
        page.click("#tab-requests")
        page.wait_for_function(f"({INK})('timeline') > 8")
        # The rows with most of it come first; a click on the part of the first one.
        page.locator("#kinds .chip", has_text="WAIT").click()
        place = place_of(page, "--k-wait", "timeline")
        page.mouse.click(*place)
        panel = page.locator("#panel")
        assert panel.locator("h3").text_content().startswith("WAIT"), panel.inner_text()
        assert panel.locator("h4", has_text="Server").is_visible()
        assert "NPLUS008" in panel.inner_text() and "redis 127.0.0.1" in panel.inner_text()
        stack = panel.locator(".stack li").all_text_contents()
        assert any("index.php" in line for line in stack), stack
        panel.locator("button", has_text="show in the flame graph").first.click()
        assert page.locator("#flame").is_visible()
        assert page.locator("#chosen b").text_content()

    def a_wait_for_a_known_server_names_it(self):
        # Made before servers were frames: one is put in the place of what all system calls have.
        copy = self.folder / "server.slip"
        shutil.copy(RECORDINGS / "wordpress.slip", copy)
        with sqlite3.connect(copy) as file:
            (redis,) = (one["address"] for one in json.loads(file.execute("select json from budget").fetchone()[0])["endpoints"] if ":" in one["address"])
            file.execute("insert into strings select max(id) + 1, ? from strings", [redis])
            name = "(select id from strings where text = 'entry_SYSCALL_64_after_hwframe')"
            file.execute(f"update frames set kind = 7, name = (select max(id) from strings) where name = {name}")
        target = self.folder / "server.html"
        subprocess.run([self.slip, "report", "--format", "html", copy, "-o", target], check=True)
        page = self.opened.new_page(viewport={"width": 1280, "height": 720})
        browser.watch(page, self.errors, self.requests)
        page.goto(target.as_uri())
        page.keyboard.press("2")
        page.locator("#kinds .chip", has_text="WAIT").click()
        page.mouse.click(*place_of(page, "--k-wait", "timeline"))
        text = page.locator("#panel").inner_text()
        assert re.search(rf"waits for redis {re.escape(redis)}; a call to it takes [\d.]+ (µs|ms): ", text), text
        assert redis not in page.locator("#panel .stack li").all_text_contents()
        self.pages.append(page)

    def requests_are_put_in_order_and_found(self):
        page = self.open("wordpress")
        page.keyboard.press("2")
        first = lambda: (page.keyboard.press("Home"), page.locator("#status").text_content())[1]  # noqa: E731
        by_begin = first()
        page.keyboard.press("r")
        longest = first()
        assert milliseconds(longest) > milliseconds(by_begin), (longest, by_begin)
        page.keyboard.press("End")
        assert milliseconds(page.locator("#status").text_content()) <= milliseconds(longest)
        page.fill("#find-request", "sleep.php")
        note = page.locator("#requests-note").text_content()
        assert re.match(r"\d+ of 80 requests", note), note
        page.keyboard.press("Escape")
        page.locator("#rows").focus()
        assert "sleep.php" in first()
        page.fill("#find-request", "")
        page.keyboard.press("Escape")
        page.keyboard.press("w")
        page.locator("#rows").focus()
        assert "php-fpm" in first()
        page.keyboard.press("c")
        assert page.locator("#axis").input_value() == "clock"

    def requests_of_python_have_the_waits_around_them(self):
        page = self.open("flask")
        page.keyboard.press("2")
        page.locator("#kinds .chip", has_text="WAIT").click()
        page.mouse.click(*place_of(page, "--k-wait", "timeline"))
        text = page.locator("#panel").inner_text()
        assert "In which request these waits were is not known" in text and ".py" in text, text

    def search_says_the_share_and_goes_through_what_it_found(self):
        page = self.open("wordpress")
        page.keyboard.press("3")
        page.keyboard.press("/")
        page.keyboard.type("apply_filters")
        found = page.locator("#found").text_content()
        assert re.fullmatch(r"[\d.]+ % of time, \d+ functions", found) and not found.startswith("0.0"), found
        page.keyboard.press("Enter")
        assert "apply_filters" in page.locator("#chosen b").text_content()
        page.fill("#find", "no such function")
        assert page.locator("#found").text_content() == "0.0 % of time, 0 functions"

    def inverted_has_the_innermost_functions_on_top(self):
        page = self.open("wordpress")
        page.keyboard.press("3")
        page.keyboard.press("ArrowDown")
        assert "{main}" in page.locator("#chosen b").text_content()
        whole = page.locator("#flame-note").text_content().split(" · ")[0]
        page.keyboard.press("i")
        assert page.locator("#mode-up").get_attribute("aria-checked") == "true"
        assert page.locator("#flame-note").text_content().startswith(whole)
        page.keyboard.press("ArrowDown")
        innermost = page.locator("#chosen b").text_content()
        assert "{main}" not in innermost
        for _ in range(60):
            page.keyboard.press("ArrowDown")
        assert "{main}" in page.locator("#chosen b").text_content()
        page.keyboard.press("i")
        assert page.locator("#mode-down").get_attribute("aria-checked") == "true"

    def sandwich_has_callers_above_and_callees_below(self):
        page = self.open("wordpress")
        page.click("#tab-flame")
        page.click("#mode-sandwich")
        page.fill("#find", "WP_Hook::apply_filters")
        page.locator("#functions button", has_text="WP_Hook::apply_filters").first.click()
        assert "WP_Hook::apply_filters" in page.locator("#chosen b").text_content()
        page.locator("#flame-box").focus()
        page.keyboard.press("ArrowUp")
        caller = page.locator("#chosen b").text_content()
        assert re.match(r"(apply_filters|WP_Hook::do_action)", caller), caller
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        assert page.locator("#chosen b").text_content() != caller

    def workers_and_kinds_of_time_add_up(self):
        page = self.open("wordpress")
        page.keyboard.press("3")
        total = lambda: page.evaluate("document.getElementById('flame-note').textContent")  # noqa: E731
        seconds = lambda text: number_of(text.split(" ·")[0])  # noqa: E731
        both = seconds(total())
        page.select_option("#time-of", "on")
        on = seconds(total())
        page.select_option("#time-of", "off")
        off = seconds(total())
        assert abs(both - on - off) < 0.11e9, (both, on, off)
        page.select_option("#time-of", "both")
        workers = page.locator("#worker option").count() - 1
        parts = []
        for worker in range(workers):
            page.select_option("#worker", str(worker))
            parts.append(seconds(total()) if "Nothing" not in total() else 0)
        assert workers > 1 and abs(sum(parts) - both) < 0.11e9, (parts, both)

    def two_recordings_are_compared(self):
        base = ["--base", RECORDINGS / "symfony.slip"]
        page = self.open("wordpress", *base)
        assert "Compared with symfony.slip" in page.locator("header").inner_text()
        assert page.locator(".budget > .bar:not(.small)").count() == 2
        assert page.locator(".budget > table th", has_text="change").is_visible()
        page.keyboard.press("3")
        assert "orange more, for each request" in page.locator("#flame-note").text_content()
        page.keyboard.press("ArrowDown")
        text = page.locator("#chosen").inner_text()
        assert re.search(r"now .* a request, before ", text), text
        page.select_option("#width-of", "before")
        page.locator("#flame-box").focus()
        page.keyboard.press("ArrowDown")
        text = page.locator("#chosen").inner_text()
        assert re.search(r"now .* a request, before ", text), text

    def keys_zoom_and_everything_is_reached_by_them(self):
        page = self.open("wordpress")
        page.keyboard.press("?")
        assert page.locator("#keys").is_visible()
        page.keyboard.press("Escape")
        assert not page.locator("#keys").is_visible()
        page.locator("#tab-overview").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#requests").is_visible()
        page.keyboard.press("ArrowRight")
        assert page.locator("#flame").is_visible()
        page.locator("#flame-box").focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "Enter", "+", "d", "a", "-", "Escape", "o", "o", "o", "0"):
            page.keyboard.press(key)
        page.wait_for_function(f"({INK})('graph') > 8")
        page.keyboard.press("2")
        for key in ("ArrowDown", "ArrowRight", "Enter"):
            page.keyboard.press(key)
        assert page.locator("#panel").is_visible()
        page.keyboard.press("Escape")
        assert not page.locator("#panel").is_visible()
        # Whoever goes by the tab key sees where the focus is, and gets to each control.
        page.keyboard.press("1")
        page.evaluate("document.activeElement.blur()")
        reached = []
        for _ in range(12):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        assert "tab-overview" in reached and "theme" in reached and "A" in reached and "SUMMARY" in reached, reached

    def a_click_zooms_and_the_wheel_too(self):
        page = self.open("wordpress")
        page.keyboard.press("3")
        box = page.locator("#flame-box").bounding_box()
        page.mouse.click(box["x"] + 60, box["y"] + 130)
        chosen = page.locator("#chosen b").text_content()
        assert chosen and "{main}" not in chosen
        page.mouse.move(box["x"] + 300, box["y"] + 60)
        assert page.locator("#tip").is_visible()
        page.mouse.click(box["x"] + 60, box["y"] + 10)
        wide = page.evaluate(WIDTHS)
        page.mouse.wheel(0, -400)
        page.wait_for_function(f"({WIDTHS})() !== {wide}")

    def dark_and_light(self):
        page = self.open("wordpress", color_scheme="dark")
        ground = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")  # noqa: E731
        dark = ground()
        page.keyboard.press("t")
        light = ground()
        assert brightness(dark) < 60 < 200 < brightness(light), (dark, light)
        page.keyboard.press("3")
        page.wait_for_function(f"({INK})('graph') > 8")

    def a_phone_has_all_of_it(self):
        page = self.open("wordpress", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
        for tab in ("overview", "requests", "flame"):
            page.tap(f"#tab-{tab}")
            assert page.locator(f"#{tab}").is_visible()
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 390, (tab, wide)
        page.tap("#tab-requests")
        box = page.locator("#rows").bounding_box()
        page.touchscreen.tap(box["x"] + 180, box["y"] + 50)
        assert page.locator("#panel h3").is_visible()
        page.tap("#tab-flame")
        box = page.locator("#flame-box").bounding_box()
        page.touchscreen.tap(box["x"] + 60, box["y"] + 80)
        assert page.locator("#chosen b").text_content()

    def programs_without_requests_have_a_row_for_each_thread(self):
        # The same recording without its budget.
        copy = self.folder / "plain.slip"
        shutil.copy(RECORDINGS / "flask.slip", copy)
        with sqlite3.connect(copy) as file:
            file.execute("delete from budget")
            file.execute("delete from served")
        target = self.folder / "plain.html"
        subprocess.run([self.slip, "report", "--format", "html", copy, "-o", target], check=True)
        page = self.opened.new_page(viewport={"width": 1280, "height": 720})
        browser.watch(page, self.errors, self.requests)
        page.goto(target.as_uri())
        assert "This recording has no budget" in page.locator(".budget").inner_text()
        page.keyboard.press("2")
        assert "knows of no requests" in page.locator("#requests-note").text_content()
        page.mouse.click(*place_of(page, "--k-wait", "timeline"))
        assert page.locator("#panel .stack li").count() > 0

    def it_is_served_to_this_machine_alone(self):
        server = subprocess.Popen([self.slip, "view", RECORDINGS / "wordpress.slip"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            address = server.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}/", address), address
            page = self.opened.new_page()
            browser.watch(page, self.errors, self.requests)
            page.goto(address)
            assert page.locator("h2", has_text="Where a request goes").is_visible()
            for wrong, headers in ((address[:-33], {}), (address, {"Host": "evil.example"})):
                try:
                    urllib.request.urlopen(urllib.request.Request(wrong, headers=headers), timeout=10)
                    raise AssertionError(f"{wrong} {headers} is answered")
                except urllib.error.HTTPError as error:
                    assert error.code in (404, 421), error
            page.close()
        finally:
            server.send_signal(2)
            assert server.wait(10) == 130


# How much of the third row of the flame graph is within boxes of one colour: another number after a zoom.
WIDTHS = """() => {
  const canvas = document.getElementById("graph");
  const { data } = canvas.getContext("2d").getImageData(0, 40, canvas.width, 1);
  let changes = 0;
  for (let at = 4; at < data.length; at += 4) if (data[at] !== data[at - 4] || data[at + 1] !== data[at - 3]) changes += at;
  return changes;
}"""

# When what is asked for now has been drawn.
DRAWN = "() => new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)))"

# Where on the page the longest run of a colour is in the first rows of a canvas.
PLACE_OF = """([name, id]) => {
  const canvas = document.getElementById(id);
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
  probe.fillRect(0, 0, 1, 1);
  const wanted = probe.getImageData(0, 0, 1, 1).data;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let best = [0, 0, 0];
  for (let y = 24; y < canvas.height; y += 4) {
    let run = 0;
    for (let x = 0; x < canvas.width; x++) {
      const at = (y * canvas.width + x) * 4;
      const same = data[at] === wanted[0] && data[at + 1] === wanted[1] && data[at + 2] === wanted[2];
      run = same ? run + 1 : 0;
      if (run > best[0]) best = [run, x - run / 2, y];
    }
    if (best[0] > 3) break;
  }
  const frame = canvas.getBoundingClientRect();
  return [frame.left + best[1] / devicePixelRatio, frame.top + best[2] / devicePixelRatio];
}"""


def place_of(page, colour, canvas):
    page.evaluate(DRAWN)
    return page.evaluate(PLACE_OF, [colour, canvas])


def number_of(text):
    """Nanoseconds."""
    number, unit = re.search(r"([\d.]+) (ns|µs|ms|s|min)", text).groups()
    return float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 6e10}[unit]


def milliseconds(text):
    return number_of(text) / 1e6


def brightness(colour):
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 3


def main():
    browser.chromium()
    browser.find_playwright()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder, browser.browser() as opened:
        tests = Tests(sys.argv[1], pathlib.Path(folder), opened)
        wanted = sys.argv[2:]
        for name in [name for name in vars(Tests) if not name.startswith("_") and name not in ("make", "open")]:
            if wanted and name not in wanted:
                continue
            try:
                getattr(tests, name)()
                assert not tests.errors, tests.errors
                assert not tests.requests, tests.requests
                print(f"ok {name}")
                passed += 1
            except Exception as error:  # noqa: BLE001
                print(f"not ok {name}: {type(error).__name__}: {error}".replace("\n", "\n  "))
                failed += 1
            tests.errors.clear()
            tests.requests.clear()
            for page in tests.pages:
                page.context.close()
            tests.pages.clear()
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except browser.Missing as missing:
        print(f"skipped: {missing}")
        print("0 passed, 0 failed, 1 skipped")
