"""The extension with AddressSanitizer and UndefinedBehaviorSanitizer, in the PHP that is installed: what it keeps of connections is malloc's memory.

What the engine has in its own heap is not seen by this; bench/asan/run builds a PHP for that.
"""

import glob
import os
import subprocess

import fpm

FLAGS = "-O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize=alignment,pointer-overflow"

#: PHP loads opcache so that it sees its own symbols first, which the sanitizer refuses.
WITHOUT_DEEPBIND = """
#define _GNU_SOURCE
#include <dlfcn.h>
void *dlopen(const char *file, int flags)
{
	void *(*next)(const char *, int) = dlsym(RTLD_NEXT, "dlopen");
	return next(file, flags & ~RTLD_DEEPBIND);
}
"""


def _said(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise fpm.Unusable(f"{command[0]}: {done.stderr.strip()[-200:]}")
    return done.stdout.strip()


def build():
    """The path of the extension."""
    headers = _said("php-config8.2", "--include-dir")
    return _said(f"{fpm.REPOSITORY}/ext/compile", "--headers", headers, "sanitized", env={**os.environ, "CFLAGS": FLAGS})


def prepare(place):
    """Servers of this place have the sanitizers from now on."""
    library = f"{place.home}/without-deepbind.so"
    _said("gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library, input=WITHOUT_DEEPBIND)
    reports = f"{place.home}/reports"
    os.mkdir(reports)
    # Workers are another user.
    os.chmod(reports, 0o777)
    preloaded = [library, *(_said("gcc", f"-print-file-name={name}.so") for name in ("libasan", "libubsan"))]
    place.prefix = ["env", f"LD_PRELOAD={':'.join(preloaded)}",
                    f"ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0:detect_stack_use_after_return=0:log_path={reports}/asan",
                    f"UBSAN_OPTIONS=print_stacktrace=1:log_path={reports}/ubsan"]


def check(checks, place):
    """Nothing was reported."""
    found = []
    for path in glob.glob(f"{place.home}/reports/*"):
        with open(path, encoding="utf-8", errors="replace") as file:
            found.append(file.read()[:2_000])
    checks.check("no sanitizer has reported anything", not found, "; ".join(found[:3]))
