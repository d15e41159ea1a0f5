#!/usr/bin/env python3
"""Opens a page of `slip report --format html` in Chromium and prints how fast it is: measure.py PAGE [TIMES]"""

import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "web"))
import browser  # noqa: E402

# Frames of the main thread while something goes on: the time from the begin of a frame's callbacks to the moment at which the thread is
# free again after it, and the tasks that the browser itself calls long.
WATCH = """() => {
  const watch = { frames: [], long: [] };
  window.watched = watch;
  const channel = new MessageChannel();
  let began = 0;
  channel.port1.onmessage = () => watch.frames.push(performance.now() - began);
  const frame = () => { began = performance.now(); channel.port2.postMessage(0); requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
  new PerformanceObserver((list) => list.getEntries().forEach((entry) => watch.long.push(entry.duration))).observe({ type: "longtask" });
}"""


def main():
    browser.find_playwright()
    page_file = pathlib.Path(sys.argv[1]).resolve()
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    paints, frames, longs, searches, views, requests, errors = [], [], [], [], [], [], []
    with browser.browser() as opened:
        for _ in range(times):
            page = opened.new_page(viewport={"width": 1280, "height": 720})
            browser.watch(page, errors, requests)
            page.goto(page_file.as_uri())
            page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
            paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            page.wait_for_timeout(1500)
            views.append(timed(page, "document.getElementById('tab-flame').click()"))
            page.evaluate(WATCH)
            box = page.locator("#flame-box").bounding_box()
            for step in range(60):
                # Into a place of the middle, out again, and into another one.
                page.mouse.move(box["x"] + box["width"] * (0.2 + 0.6 * (step // 30)), box["y"] + 100)
                page.mouse.wheel(0, -120 if step % 30 < 20 else 240)
                page.wait_for_timeout(20)
            for key in "++++----aaaadddd0":
                page.keyboard.press(key)
                page.wait_for_timeout(20)
            page.mouse.click(box["x"] + box["width"] * 0.4, box["y"] + 150)
            page.wait_for_timeout(400)
            watched = page.evaluate("window.watched")
            frames.append(max(watched["frames"]))
            longs.append(max(watched["long"], default=0))
            for word in ("service5", "module4", "nothing that is there"):
                searches.append(timed(page, f"const find = document.getElementById('find'); find.value = '{word}'; find.dispatchEvent(new Event('input'))"))
            page.evaluate("const find = document.getElementById('find'); find.value = ''; find.dispatchEvent(new Event('input'))")
            for mode in ("up", "sandwich"):
                views.append(timed(page, f"document.getElementById('mode-{mode}').click()"))
            views.append(timed(page, "document.getElementById('tab-requests').click()"))
            page.close()
    print(f"page: {page_file.stat().st_size / 1e6:.1f} MB, opened {times} times in {browser.chromium()}")
    print(f"first contentful paint: {statistics.median(paints):.0f} ms (longest {max(paints):.0f})")
    print(f"longest frame of the main thread while zooming: {statistics.median(frames):.1f} ms (longest {max(frames):.1f}); longest task by the browser: {max(longs):.0f} ms")
    print(f"search, to the drawn frame: {statistics.median(searches):.0f} ms (longest {max(searches):.0f})")
    print(f"switch of view, to the drawn frame: {statistics.median(views):.0f} ms (longest {max(views):.0f})")
    print(f"network requests besides the document: {len(requests)}; errors in the console: {len(errors)}")
    for error in errors:
        print(f"  {error}")
    print(
        f"result: first paint {max(paints):.0f} ms (bar 1000), longest frame while zooming {max(frames):.0f} ms (bar 33), "
        f"search {max(searches):.0f} ms (bar 100), {len(requests)} network requests (bar 0); {page_file.stat().st_size / 1e6:.1f} MB"
    )
    limits = [max(paints) < 1000, max(frames) <= 33, max(searches) < 100, not requests, not errors]
    sys.exit(0 if all(limits) else 1)


def timed(page, script):
    """Milliseconds from an action to the end of the frame that shows it."""
    return page.evaluate(
        f"""() => new Promise((done) => {{
          const began = performance.now();
          {{ {script} }}
          requestAnimationFrame(() => {{
            const channel = new MessageChannel();
            channel.port1.onmessage = () => done(performance.now() - began);
            channel.port2.postMessage(0);
          }});
        }})"""
    )


if __name__ == "__main__":
    try:
        main()
    except browser.Missing as missing:
        print(f"error: {missing}", file=sys.stderr)
        sys.exit(6)
