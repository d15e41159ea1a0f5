"""The browser for the page's tests, measurements and pictures: Debian's Chromium, driven by Playwright from a folder of ours."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("SLIP_CACHE", pathlib.Path.home() / ".cache/slipstream"))

# The hashes of the requirements are those of this interpreter's wheels.
PYTHON = "/usr/bin/python3"


class Missing(Exception):
    """There is no browser here, and why."""


def find_playwright():
    """Goes on in the interpreter that has Playwright, which is installed on first use."""
    requirements = HERE / "browser-requirements.txt"
    folder = CACHE / "browser"
    python = folder / "bin/python"
    done = folder / "done"
    if not done.exists() or done.read_text() != requirements.read_text():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([PYTHON, "-m", "venv", folder], check=True)
        install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--require-hashes", "--only-binary=:all:"]
        found = subprocess.run([*install, "-r", requirements], capture_output=True, text=True)
        if found.returncode != 0:
            raise Missing("Playwright cannot be had: " + (found.stderr.strip().splitlines() or ["pip fails"])[-1])
        done.write_text(requirements.read_text())
    if pathlib.Path(sys.prefix) != folder:
        os.execv(python, [python, *sys.argv])


def chromium():
    """The path of Chromium."""
    path = shutil.which("chromium")
    if path is None:
        raise Missing("there is no chromium (Debian's package of that name)")
    return path


@contextlib.contextmanager
def browser():
    """A Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root there is no sandbox; the only page that it opens is ours.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        try:
            yield opened
        finally:
            opened.close()


def watch(page, errors, requests):
    """Notes what the page complains about, and what it asks for besides itself."""
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url) if not request.is_navigation_request() else None)
