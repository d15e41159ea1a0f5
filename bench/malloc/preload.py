"""The libraries that `bench/malloc/run` compares: ours, Debian's, and newer ones that are built from the sources within crates."""

import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
CACHE = os.path.join(os.environ.get("SLIP_CACHE") or os.path.expanduser("~/.cache/slipstream"), "malloc-peers")
LIBRARIES = "usr/lib/x86_64-linux-gnu"
CRATES = f"{HERE}/peers"

#: Debian's packages, and the library in each.
PACKAGES = {
    "jemalloc": ("libjemalloc2", "libjemalloc.so.2"),
    "mimalloc": ("libmimalloc2.0", "libmimalloc.so.2"),
    "tcmalloc": ("libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
}

#: What a shared library in the place of the C library's malloc() is compiled with.
PRELOADED = ["-shared", "-fPIC", "-O3", "-DNDEBUG", "-D_GNU_SOURCE", "-fvisibility=hidden", "-ftls-model=initial-exec", "-fno-builtin", "-pthread"]


def run(*command, folder=None):
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)


def mimalloc(source, folder, version):
    """Its makefiles are not in the crate."""
    source = f"{source}/c_src/mimalloc/{version}"
    defines = ["-DMI_MALLOC_OVERRIDE", "-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT"]
    run("gcc", *PRELOADED, *defines, f"-I{source}/include", f"{source}/src/static.c", "-o", f"{folder}/out.so")
    return f"{folder}/out.so"


def rpmalloc(source, folder):
    defines = ["-DENABLE_PRELOAD=1", "-DENABLE_OVERRIDE=1"]
    run("gcc", *PRELOADED, *defines, f"{source}/rpmalloc/rpmalloc/rpmalloc.c", "-ldl", "-o", f"{folder}/out.so")
    return f"{folder}/out.so"


def snmalloc(source, folder):
    run("cmake", "-S", f"{source}/upstream", "-B", folder, "-DCMAKE_BUILD_TYPE=Release", "-DSNMALLOC_BUILD_TESTING=OFF")
    run("cmake", "--build", folder, "--target", "snmallocshim")
    return f"{folder}/libsnmallocshim.so"


def jemalloc(source, folder):
    version = os.path.basename(source).split("+")[1]
    shutil.copytree(f"{source}/jemalloc", folder, dirs_exist_ok=True)
    # Made for the crate, because the sources have only what it is made from.
    shutil.copy(f"{source}/configure/configure", folder)
    run("sh", "configure", f"--with-version={version}", "--disable-cxx", "--enable-doc=no", "--disable-static", folder=folder)
    run("make", "-j2", "lib/libjemalloc.so.2", folder=folder)
    return f"{folder}/lib/libjemalloc.so.2"


#: The crate of each, and what builds it from the crate's folder in another one.
BUILT = {
    "mimalloc2": ("libmimalloc-sys", lambda source, folder: mimalloc(source, folder, "v2")),
    "mimalloc3": ("libmimalloc-sys", lambda source, folder: mimalloc(source, folder, "v3")),
    "jemalloc-new": ("tikv-jemalloc-sys", jemalloc),
    "snmalloc": ("snmalloc-sys", snmalloc),
    "rpmalloc": ("rpmalloc-sys", rpmalloc),
}


def packaged(name):
    """Path of a library of Debian's: installed, or unpacked from its package. None if it cannot be had."""
    package, file = PACKAGES[name]
    for root in ("/", CACHE):
        path = os.path.join(root, LIBRARIES, file)
        if os.path.exists(path):
            return path
    os.makedirs(CACHE, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["apt-get", "-q", "download", package], cwd=folder, capture_output=True).returncode == 0:
            for archive in os.listdir(folder):
                subprocess.run(["dpkg", "-x", archive, CACHE], cwd=folder, check=True)
    path = os.path.join(CACHE, LIBRARIES, file)
    return path if os.path.exists(path) else None


def crate_version(crate):
    """The one in the lock file, which also has the checksum that cargo looks at."""
    with open(f"{CRATES}/Cargo.lock") as file:
        return re.search(f'name = "{crate}"\nversion = "([^"]+)"', file.read()).group(1)


def crate_source(crate):
    """Folder of a crate's sources."""
    folder = f"{CACHE}/crates/{crate}-{crate_version(crate)}"
    if not os.path.exists(folder):
        with tempfile.TemporaryDirectory(dir=CACHE) as vendored:
            run("cargo", "vendor", "-q", "--locked", "--versioned-dirs", "--manifest-path", f"{CRATES}/Cargo.toml", vendored)
            os.makedirs(f"{CACHE}/crates", exist_ok=True)
            os.rename(f"{vendored}/{os.path.basename(folder)}", folder)
    return folder


def built(name):
    """Path of a library that is built here if it was not yet. An error tells why it cannot be had."""
    crate, build = BUILT[name]
    path = f"{CACHE}/built/{name}-{crate_version(crate)}.so"
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            os.rename(build(crate_source(crate), folder), path)
    return path


#: Linux 5.14; Python does not know it.
MADV_POPULATE_WRITE = 23


def back_memory(megabytes):
    """Has memory that is free behind it what is there: the host of a virtual machine takes back what was free for two seconds, and then the
    first program to touch it pays up to ten times as much for a page as the next one. Without this, who comes after a pause is slow."""
    memory = mmap.mmap(-1, megabytes << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.madvise(mmap.MADV_HUGEPAGE)
        memory.madvise(MADV_POPULATE_WRITE)
    except OSError:
        # A kernel that has neither: then it is as it is.
        pass
    memory.close()


def instructions(library, command, function=None):
    """How many a command executes with a library, all threads together, as callgrind counts them: those of one function and what it calls, or all."""
    if not shutil.which("valgrind"):
        sys.exit("error: instructions are counted by valgrind, which is not there\nhint: apt-get install valgrind")
    with tempfile.TemporaryDirectory() as folder:
        counts = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", *([f"--toggle-collect={function}"] if function else [])]
        subprocess.run([*counts, *command], env=environment(library), capture_output=True, check=True)
        with open(f"{folder}/out") as file:
            return int(re.search(r"^(?:summary|totals): (\d+)", file.read(), re.M).group(1))


def skip(name, reason):
    print(f"skip {name}: {reason}", file=sys.stderr)


def newer(names):
    """Those of the libraries from crates that can be had; the others are told with a reason."""
    found = {}
    for name in names:
        try:
            found[name] = built(name)
        except OSError as error:
            skip(name, error)
        except subprocess.CalledProcessError as error:
            skip(name, f"{error.cmd[0]} failed: {(error.stderr.strip().splitlines() or ['no message'])[-1]}")
    return found


def ours():
    """Paths of the usual and the secure library, built anew."""
    usual, secure, _ = subprocess.run([f"{REPOSITORY}/alloc/compile"], check=True, capture_output=True, text=True).stdout.split()
    return usual, secure


def environment(library):
    variables = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return variables | {"LD_PRELOAD": library} if library else variables
