"""What the measurements of kept connections have in common: servers of our own, and pages that ask them."""

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import time

import fpm

#: Keys whose value says which one it is.
USERS = 100


#: Below those that the system gives to clients: while a server is down, one of these could connect to itself.
SERVER_PORTS = range(15_000, 30_000)


def server_port():
    while True:
        port = random.choice(SERVER_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def resp(*words):
    return f"*{len(words)}\r\n".encode() + b"".join(f"${len(word)}\r\n{word}\r\n".encode() for word in words)


def answers_to(port, request, expected):
    """Whether a server is there, and speaks what it should."""
    with contextlib.suppress(OSError):
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(request)
            return connection.recv(len(expected)) == expected
    return False


class Certificates:
    """An authority of our own, and a certificate of its for each name."""

    def __init__(self, place):
        self.folder, self.inside = f"{place.home}/certificates", f"{place.inside}/certificates"
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o755)
        for name in "ca", "other-ca":
            self._run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
        for name in "server", "client", "other-client":
            self.issue(name)
        for file in os.listdir(self.folder):
            os.chmod(f"{self.folder}/{file}", 0o644)

    def issue(self, name):
        with open(f"{self.folder}/{name}.ext", "w", encoding="ascii") as file:
            file.write("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        self._run("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        self._run("x509", "-req", "-days", "2", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", f"{name}.ext",
                  "-out", f"{name}.pem")
        with open(f"{self.folder}/{name}.both.pem", "wb") as both:
            for part in "key", "pem":
                with open(f"{self.folder}/{name}.{part}", "rb") as file:
                    both.write(file.read())

    def _run(self, *arguments):
        done = subprocess.run(["openssl", *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            raise fpm.Failed(f"openssl {arguments[0]}: {done.stderr}")


class Clients:
    """Clients of Redis that are written in PHP, each in a folder of its own: PHP need not have any of them."""

    #: What Debian 12 has; others are unpacked from other suites. Credis is in none of them.
    OURS = "/usr/share/php/Predis"

    def __init__(self, place):
        self.folder, self.inside, self.versions = f"{place.home}/clients", f"{place.inside}/clients", {}
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o755)
        if os.path.isdir(self.OURS):
            shutil.copytree(self.OURS, f"{self.folder}/predis/Predis")
            self.versions["predis"] = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "php-predis"], capture_output=True, text=True, check=False).stdout
        else:
            self._is_missing("predis", "php-predis is not installed")
        for name in "predis2", "predis3":
            self._unpacked(name)
        credis = os.environ.get("CREDIS")
        if credis:
            os.mkdir(f"{self.folder}/credis")
            shutil.copy(f"{credis}/Client.php", f"{self.folder}/credis")
            self.versions["credis"] = credis
        else:
            self._is_missing("credis", "no package of the distribution has it; CREDIS=FOLDER names one with its Client.php")

    def _unpacked(self, name):
        script = f"{fpm.REPOSITORY}/fixtures/clients/clients"
        said = [subprocess.run([script, what, name], capture_output=True, text=True, check=False) for what in ("path", "version")]
        if said[0].returncode:
            self._is_missing(name, said[0].stderr.strip().splitlines()[0])
            return
        shutil.copytree(said[0].stdout.strip(), f"{self.folder}/{name}")
        self.versions[name] = said[1].stdout.strip()

    def _is_missing(self, name, why):
        with open(f"{self.folder}/{name}.why", "w", encoding="utf-8") as file:
            file.write(why)


def server_program(name):
    """How redis-server is started, or the Valkey of a later Debian, with the libraries that it came with."""
    if name == "redis":
        return ["redis-server"]
    script = os.path.join(fpm.REPOSITORY, "fixtures/roots/roots")
    said = subprocess.run([script, "path", name], capture_output=True, text=True, check=False)
    if said.returncode:
        raise fpm.Unusable(said.stderr.strip().splitlines()[0])
    root = said.stdout.strip()
    return [f"{root}/usr/lib64/ld-linux-x86-64.so.2", "--library-path", f"{root}/usr/lib/x86_64-linux-gnu", f"{root}/usr/bin/valkey-server"]


class Redis:
    """A server of our own, which a worker reaches by TCP, by a path and with TLS."""

    def __init__(self, place, certificates, program):
        self.folder, self.certificates, self.program = f"{place.home}/redis", certificates, program
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o777)
        self.port, self.tls_port = server_port(), server_port()
        self.path, self.inside = f"{self.folder}/redis.sock", f"{place.inside}/redis/redis.sock"
        self.process = None
        self.start()

    def start(self):
        keys = self.certificates.folder
        command = [*self.program, "--bind", "127.0.0.1", "--port", str(self.port), "--unixsocket", self.path, "--unixsocketperm", "777",
                   "--dir", self.folder, "--save", "", "--appendonly", "no", "--enable-debug-command", "local", "--tls-port", str(self.tls_port),
                   "--tls-cert-file", f"{keys}/server.pem", "--tls-key-file", f"{keys}/server.key", "--tls-ca-cert-file", f"{keys}/ca.pem",
                   "--tls-auth-clients", "optional"]
        with open(f"{self.folder}/log", "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=fpm.end_with_parent)
        fpm.wait_until(lambda: answers_to(self.port, b"PING\r\n", b"+PONG\r\n"), f"{self.program[-1]} does not start")
        self.ask("SET", "key", "right")
        self.ask("SET", "large", "x" * 100_000)
        self.ask("MSET", *(word for number in range(USERS) for word in (f"user:{number}", f"value-{number}")))
        self.ask("ACL", "SETUSER", "other", "on", ">secret", "~*", "+@all")
        self.let_in("secret-of-booted")
        # Another value in that user's database.
        self.ask("COPY", "user:1", "key", "DB", "7")
        self.ask("COPY", "user:7", "user:7", "DB", "7")

    def ask(self, *words):
        """The reply's first line, or its text."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as connection, connection.makefile("rwb") as file:
            file.write(resp(*words))
            file.flush()
            line = file.readline().decode().rstrip()
            if line.startswith("$") and line != "$-1":
                return file.read(int(line[1:])).decode()
            if not line or line[0] == "-":
                raise ValueError(f"redis: {line}")
            return line[1:]

    def let_in(self, password):
        """Whom a boot says it is."""
        self.ask("ACL", "SETUSER", "booted", "on", "resetpass", f">{password}", "~*", "+@all")

    def connections(self):
        """So many have been made so far, without the one that asks."""
        stats = self.ask("INFO", "stats")
        return int(next(line for line in stats.splitlines() if line.startswith("total_connections_received:")).partition(":")[2]) - 1

    def drop_clients(self):
        self.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def restart(self):
        self.stop()
        self.start()

    def stop(self):
        fpm.stop(self.process)


class Memcached:
    """A server of our own. Its data are gone when it starts again, as they are with Redis."""

    def __init__(self, place, name, arguments=(), path=None):
        if not shutil.which("memcached"):
            raise fpm.Unusable("memcached is not installed")
        self.folder = f"{place.home}/{name}"
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o777)
        self.path, self.inside = (f"{self.folder}/{path}", f"{place.inside}/{name}/{path}") if path else (None, None)
        self.arguments, self.port, self.process = arguments, None if path else server_port(), None
        self.start()

    def start(self):
        way = ["-s", self.path, "-a", "777"] if self.path else ["-l", "127.0.0.1", "-p", str(self.port)]
        command = ["memcached", "-u", "root", "-m", "16", "-t", "1", *way, *self.arguments]
        with open(f"{self.folder}/log", "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=fpm.end_with_parent)
        fpm.wait_until(self._answers, "memcached does not start")
        if "-Y" in self.arguments:
            return
        self.ask("set key 0 0 5\r\nright")
        self.ask("set large 0 0 100000\r\n" + "x" * 100_000)

    def _connect(self):
        if not self.path:
            return socket.create_connection(("127.0.0.1", self.port), 5)
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(5)
        connection.connect(self.path)
        return connection

    def _answers(self):
        with contextlib.suppress(OSError):
            return self.ask("version") != ""
        return False

    def ask(self, command, end=None):
        """The first line of the answer, or all lines before the one that ends it."""
        with self._connect() as connection, connection.makefile("rwb") as file:
            file.write(command.encode() + b"\r\n")
            file.flush()
            lines = [file.readline().decode().rstrip()]
            while end and lines[-1] != end:
                lines.append(file.readline().decode().rstrip())
            return "\n".join(lines)

    def value(self, key):
        return self.ask(f"get {key}", "END").partition("\n")[2].removesuffix("\nEND")

    def connections(self):
        stats = self.ask("stats", "END")
        return int(next(line for line in stats.splitlines() if line.startswith("STAT total_connections ")).rpartition(" ")[2]) - 1

    def stop(self):
        fpm.stop(self.process)

    def restart(self):
        self.stop()
        self.start()

    # It cannot be told to.
    drop_clients = restart


class Pages:
    """Requests to one pool."""

    def __init__(self, port, way, script="page"):
        self.client, self.way, self.script = fpm.Client(port), way, script

    def ask(self, do, **query):
        words = "&".join(f"{name}={value}" for name, value in {"do": do, **query}.items())
        begin = time.monotonic()
        response = self.client.ask(f"/{self.way}/{self.script}.php?{words}")
        took_s = time.monotonic() - begin
        if response.status != 200:
            raise fpm.Failed(f"{words}: {response.status} {response.body[:200]!r}")
        return {**json.loads(response.body), "took_s": took_s}

    def ask_failing(self, do, **query):
        """A request that ends by a fatal error."""
        words = "&".join(f"{name}={value}" for name, value in {"do": do, **query}.items())
        response = self.client.ask(f"/{self.way}/{self.script}.php?{words}")
        if response.status != 500:
            raise fpm.Failed(f"{words}: {response.status} {response.body[:200]!r}")
