"""php-fpm with the extension behind nginx, for benches that ask it many thousand times and look at the workers meanwhile.

Everything lives in one temporary folder. What was started is stopped by its process id, in reverse order.
"""

import argparse
import contextlib
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from ending import end_by_exception

#: Longest wait for a server to start, to answer, to come to rest or to end. The machine may be busy.
PATIENCE_S = 60

#: How often a condition is looked at while it is waited for.
POLL_S = 0.001

#: Those of fixtures/roots/roots, by the PHP in them.
ROOTS = {"8.4": "php", "8.5": "php8.5"}

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

#: What a process that died, or an allocator that noticed damage, leaves in a log.
CRASH = re.compile(r"exited on signal|SIGSEGV|SIGABRT|SIGBUS|zend_mm_heap corrupted|core dumped|double free|corrupted|free\(\): invalid")


class Unusable(Exception):
    """This PHP is not here; the message says why."""


class Failed(Exception):
    """A server did not start or does not answer."""


class Checks:
    """Promises, each of which holds or does not, and the line that ends a run."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, promise, holds, detail=""):
        if holds:
            self.passed += 1
        else:
            self.failed += 1
        detail = " ".join(detail.split())
        print(f"{'ok' if holds else 'not ok'} {promise}{': ' + detail if detail else ''}", flush=True)

    def skip(self, promise, reason):
        self.skipped += 1
        print(f"skip {promise}: {reason}", flush=True)

    def finish(self, figure=None):
        """Prints the last lines; the exit status of the program."""
        counts = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"
        print(f"result: {figure}; {counts}" if figure else f"result: {counts}")
        print(counts)
        return 1 if self.failed else 0


def arguments(description, requests):
    """The parser with the options that all of these benches have."""
    end_by_exception(signal.SIGTERM, signal.SIGINT)
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="exit codes: 0 every promise holds (or this PHP is not here), 1 one does not, 2 wrong use")
    parser.add_argument("--requests", type=int, default=requests, metavar="N", help=f"default {requests}")
    parser.add_argument("--php", choices=["8.2", *ROOTS], default="8.2", help="all but 8.2 run in the roots that fixtures/roots/roots has built (default 8.2)")
    parser.add_argument("--extension", metavar="PATH", help="slipstream.so for the chosen PHP (default: ext/compile makes it)")
    parser.add_argument("--restore", choices=["auto", "userfault", "scan", "pagemap", "copy", "remap"], default="auto", help="slipstream.restore (default auto)")
    parser.add_argument("--seed", type=int, help="repeats the order of requests of an earlier run")
    parser.add_argument("--keep", action="store_true", help="leave the temporary folder")
    return parser


def wait_until(ready, what, patience_s=PATIENCE_S):
    limit = time.monotonic() + patience_s
    while not ready():
        if time.monotonic() > limit:
            raise Failed(f"{what}: still not so after {patience_s} s")
        time.sleep(POLL_S)


def end_with_parent():
    """In a child before it becomes its program: a bench that is killed leaves nothing behind."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Place:
    """Where PHP runs, and the folder of this run as seen from here and from there."""

    def __init__(self, options, sources):
        self.php, self.keep = options.php, options.keep
        self.prefix, base = [], ""
        if os.geteuid() != 0:
            raise Unusable("needs root: workers run as another user, and their memory is read")
        for program in ("nginx", *(["php-fpm8.2"] if self.php == "8.2" else [])):
            if not shutil.which(program):
                raise Unusable(f"{program} is not installed")
        if self.php != "8.2":
            roots = f"{REPOSITORY}/fixtures/roots/roots"
            asked = subprocess.run([roots, "path", ROOTS[self.php]], capture_output=True, text=True, check=False)
            if asked.returncode != 0:
                raise Unusable((asked.stderr or "the root of PHP cannot be found").strip().splitlines()[0])
            # With /proc: the extension reads the maps of its own process.
            base, self.prefix = asked.stdout.strip(), [roots, "run", ROOTS[self.php], "--proc", "--"]
        extension = options.extension or self._build()
        self.home = tempfile.mkdtemp(prefix="slipstream-bench-", dir=f"{base}/tmp")
        self.inside = self.home[len(base):]
        os.chmod(self.home, 0o755)
        shutil.copytree(sources, f"{self.home}/www")
        os.chmod(f"{self.home}/www", 0o777)
        shutil.copyfile(extension, f"{self.home}/slipstream.so")

    def _build(self):
        built = subprocess.run([f"{REPOSITORY}/ext/compile", self.php], stdout=subprocess.PIPE, text=True, check=False)
        if built.returncode != 0:
            raise Unusable("the extension cannot be built")
        return built.stdout.strip().splitlines()[-1]

    def command(self, program):
        return [*self.prefix, f"{program}{self.php}"]

    def remove(self):
        if self.keep:
            print(f"left: {self.home}", file=sys.stderr)
        else:
            shutil.rmtree(self.home, ignore_errors=True)


class Pool:
    """Workers of one php-fpm. `settings` are lines of its section, `values` ini settings."""

    def __init__(self, name, workers=1, settings=None, values=None):
        self.name, self.workers = name, workers
        self.settings, self.values = settings or {}, values or {}


class Fpm:
    """One master with its pools."""

    def __init__(self, place, name, pools, ini=None, restore="auto", extension=True):
        self.place, self.name = place, name
        self.pools = {pool.name: pool for pool in pools}
        self.folder = f"{place.home}/{name}"
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o777)
        inside = f"{place.inside}/{name}"
        # Long enough for a request that runs into its time limit.
        lines = ["[global]", f"error_log = {inside}/fpm.log", "daemonize = no", "process_control_timeout = 20"]
        for pool in pools:
            lines += [f"[{pool.name}]", f"listen = {inside}/{pool.name}.socket", "pm = static", f"pm.max_children = {pool.workers}",
                      "user = www-data", "group = www-data", f"php_value[error_log] = {inside}/{pool.name}.errors",
                      f"php_value[sys_temp_dir] = {inside}/{pool.name}.tmp", f"php_value[session.save_path] = {inside}/{pool.name}.tmp",
                      f"php_value[upload_tmp_dir] = {inside}/{pool.name}.tmp"]
            lines += [f"{key} = {value}" for key, value in pool.settings.items()]
            lines += [f"php_value[{key}] = {value}" for key, value in pool.values.items()]
            os.mkdir(f"{self.folder}/{pool.name}.tmp")
            os.chmod(f"{self.folder}/{pool.name}.tmp", 0o777)
        with open(f"{self.folder}/fpm.conf", "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        command = [*place.command("php-fpm"), "-F", "-R", "-y", f"{inside}/fpm.conf"]
        values = {"opcache.enable": 1, "opcache.file_update_protection": 0, "opcache.validate_timestamps": 0, "display_errors": 0,
                  "log_errors": 1, "opcache.jit": "disable", **(ini or {})}
        if extension:
            values = {"extension": f"{place.inside}/slipstream.so", "slipstream.restore": restore, **values}
        for key, value in values.items():
            command += ["-d", f"{key}={value}"]
        with open(f"{self.folder}/fpm.out", "wb") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=end_with_parent)
        try:
            self.wait_ready(1)
        except Failed as error:
            self.stop()
            raise Failed(f"{error}\n{self.log()}") from None

    def wait_ready(self, times):
        """Until the master has said so often that it is ready."""
        def ready():
            if self.process.poll() is not None:
                raise Failed(f"php-fpm ended\n{self.log()}")
            return self.log().count("ready to handle connections") >= times
        wait_until(ready, "php-fpm does not start")

    def log(self):
        text = ""
        for name in sorted(os.listdir(self.folder)):
            if name in ("fpm.log", "fpm.out") or name.endswith(".errors"):
                with open(f"{self.folder}/{name}", encoding="utf-8", errors="replace") as file:
                    text += file.read()
        return text

    def crashes(self):
        """Lines of the logs that speak of one."""
        return [line for line in self.log().splitlines() if CRASH.search(line)]

    def workers(self, pool):
        """Process ids, in order."""
        found = []
        for pid in children(self.process.pid):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    if file.read().startswith(f"php-fpm: pool {pool}".encode()):
                        found.append(pid)
        return sorted(found)

    def worker(self, pool):
        """The only worker of a pool."""
        wait_until(lambda: len(self.workers(pool)) == 1, f"pool {pool} has no worker")
        return self.workers(pool)[0]

    def stop(self):
        stop(self.process)


def children(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(child) for child in file.read().split()]
    return []


def stop(process):
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Nginx:
    """The way in. `locations`: prefix of the path -> (Fpm, pool name, further fastcgi parameters)."""

    def __init__(self, place, locations):
        self.folder = f"{place.home}/nginx"
        os.mkdir(self.folder)
        self.port = free_port()
        www = f"{place.inside}/www"
        blocks = []
        for prefix, (fpm, pool, parameters) in locations.items():
            extra = "".join(f'            fastcgi_param {name} "{value}";\n' for name, value in parameters.items())
            blocks.append(f"""
        location ~ ^/{prefix}/(?<script>\\w+\\.php)(?<path>/.*)?$ {{
            include parameters;
            fastcgi_param SCRIPT_FILENAME {www}/$script;
            fastcgi_param SCRIPT_NAME /$script;
            fastcgi_param PATH_INFO $path;
            fastcgi_param DOCUMENT_ROOT {www};
{extra}            fastcgi_pass unix:{fpm.folder}/{pool}.socket;
        }}""")
        parameters = {
            "DOCUMENT_URI": "$document_uri", "REQUEST_URI": "$request_uri", "REQUEST_METHOD": "$request_method", "REQUEST_SCHEME": "$scheme",
            "QUERY_STRING": "$query_string", "CONTENT_TYPE": "$content_type", "CONTENT_LENGTH": "$content_length",
            "GATEWAY_INTERFACE": "CGI/1.1", "SERVER_PROTOCOL": "$server_protocol", "SERVER_SOFTWARE": "nginx", "SERVER_NAME": "$host",
            "REMOTE_ADDR": "$remote_addr", "REMOTE_PORT": "$remote_port", "REDIRECT_STATUS": "200",
        }
        with open(f"{self.folder}/parameters", "w", encoding="utf-8") as file:
            file.write("".join(f"fastcgi_param {name} {value};\n" for name, value in parameters.items()))
        temporary = "".join(f"    {kind}_temp_path temp-{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(f"{self.folder}/nginx.conf", "w", encoding="utf-8") as file:
            file.write(f"""user root;
daemon off;
master_process off;
pid nginx.pid;
events {{ worker_connections 256; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_max_body_size 64m;
    fastcgi_read_timeout 120;
    fastcgi_max_temp_file_size 0;
{temporary}    server {{
        listen 127.0.0.1:{self.port};
{''.join(blocks)}
    }}
}}
""")
        with open(f"{self.folder}/nginx.log", "wb") as log:
            command = ["nginx", "-p", self.folder, "-e", f"{self.folder}/nginx.log", "-c", "nginx.conf"]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=end_with_parent)
        wait_until(self._answers, "nginx does not start")

    def _answers(self):
        if self.process.poll() is not None:
            with open(f"{self.folder}/nginx.log", encoding="utf-8") as file:
                raise Failed(f"nginx ended: {file.read()}")
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        except OSError:
            return False

    def stop(self):
        stop(self.process)


class Response:
    def __init__(self, status, head, body):
        self.status, self.head, self.body = status, head, body

    def header(self, name):
        """The first one of that name, or None."""
        found = re.search(rb"(?mi)^" + name.encode() + rb": ([^\r\n]*)", self.head)
        return found.group(1).decode() if found else None


class Client:
    """One kept connection."""

    def __init__(self, port):
        self.port, self.connection = port, None

    def _connect(self):
        self.connection = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @staticmethod
    def message(target, method="GET", headers=(), body=b"", host="site.example"):
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *headers]
        if body or method in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(body)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + body

    def ask(self, target, method="GET", headers=(), body=b"", host="site.example"):
        if self.connection is None:
            self._connect()
        self.connection.sendall(self.message(target, method, headers, body, host))
        return self._response()

    def _response(self):
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive()
        head, data = data.split(b"\r\n\r\n", 1)
        lower = head.lower()
        if b"\r\ntransfer-encoding: chunked" in lower:
            body, whole = self._chunks(data)
        else:
            length = int(re.search(rb"\r\ncontent-length: (\d+)", lower).group(1))
            whole = True
            while len(data) < length:
                try:
                    data += self._receive()
                except Failed:
                    whole = False
                    break
            body = data
        if not whole or b"\r\nconnection: close" in lower:
            self.close()
        return Response(int(head.split(b" ", 2)[1]), head, body)

    def _chunks(self, data):
        """The body of an answer of unknown length, and whether it was there to the end."""
        body = b""
        try:
            while True:
                while b"\r\n" not in data:
                    data += self._receive()
                size, data = data.split(b"\r\n", 1)
                size = int(size, 16)
                while len(data) < size + 2:
                    data += self._receive()
                body, data = body + data[:size], data[size + 2:]
                if size == 0:
                    return body, True
        except Failed:
            return body + data, False

    def _receive(self):
        try:
            more = self.connection.recv(262_144)
        except OSError as error:
            raise Failed(f"no answer: {error}") from None
        if not more:
            self.close()
            raise Failed("the connection was closed in the middle of an answer")
        return more

    def abandon(self, target, read_bytes):
        """Asks by a connection of its own and goes away after so many bytes of the answer, before it has begun if 0."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as connection:
            # Closed by the other side at the end, so that a short answer is not waited for.
            connection.sendall(self.message(target, headers=["Connection: close"]))
            got = 0
            while got < read_bytes:
                more = connection.recv(min(65_536, read_bytes - got))
                if not more:
                    break
                got += len(more)
            # With a reset: nobody will take the rest.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


# ---- a worker from outside ----

def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rsplit(") ", 1)[1][0]


def is_waiting(pid):
    """Whether it waits for the next request: in accept(), not in anything that a request does."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
            call = file.read().split()[0]
        # accept and accept4. Not poll: php-fpm waits by it for the first bytes of a connection, and requests use it too.
        return call in ("43", "288")
    return False


def settle(pid):
    wait_until(lambda: is_waiting(pid), f"worker {pid} does not come to rest")


def footprint(pid):
    """Resident kilobytes, memory maps, open descriptors but for that of write protection, which not every image uses."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        resident_kib = int(re.search(r"VmRSS:\s*(\d+)", file.read()).group(1))
    with open(f"/proc/{pid}/maps", "rb") as file:
        maps = file.read().count(b"\n")
    descriptors = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
    with contextlib.suppress(ValueError):
        descriptors.remove("anon_inode:[userfaultfd]")
    return resident_kib, maps, len(descriptors)


IMAGE = "/memfd:slipstream-image"


def image_file(pid):
    """What the image of this worker holds, or None if it has none."""
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{descriptor}").startswith(IMAGE):
                with open(f"/proc/{pid}/fd/{descriptor}", "rb") as file:
                    return file.read()
    return None


def image_memory(pid):
    """The memory in which the image is used, as it is now. Ask a worker that waits."""
    parts = []
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        lines = [line for line in file if IMAGE in line and " rw" in line]
    with open(f"/proc/{pid}/mem", "rb") as memory:
        for line in lines:
            start, end = (int(word, 16) for word in line.split()[0].split("-"))
            memory.seek(start)
            parts.append(memory.read(end - start))
    return b"".join(parts)
