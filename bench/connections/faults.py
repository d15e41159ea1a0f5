"""What befalls a server while clients ask it, and what they may get then."""

import collections
import contextlib
import os
import signal
import socket
import threading
import time

import fpm
from pages import USERS, Pages

#: So many ask at once, each the pool with kept connections and the other one in turns.
ASKING = 4

#: Longest that a server stands still; less than the clients' patience.
STILL_S = 0.3
#: How long another program has the port.
OTHER_S = 0.2
#: From one fault to the next one.
BETWEEN_S = (0.1, 0.5)

#: What a port may say that is no Redis. Not a string of a negative length: PHP ends with "integer overflow in memory allocation" when phpredis 5.3 reads
#: one, with the extension and without.
NONSENSE = (b"+RESET\r\n", b"MN\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$-1\r\n", b"*1000000\r\n", b"+OK\r\n+OK\r\n", bytes(range(256)), b"", b"-ERR\r\n")


class Impostor:
    """Another program behind the port, until it is left."""

    def __init__(self, port, answer):
        self.answer, self.ended = answer, threading.Event()
        self.listening = socket.create_server(("127.0.0.1", port), backlog=64)
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self):
        while not self.ended.is_set():
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            thread.start()
            self.threads.append(thread)

    def _serve(self, connection):
        connection.settimeout(0.05)
        # It closes what it does not understand.
        with connection, contextlib.suppress(OSError, ValueError, IndexError):
            while not self.ended.is_set():
                try:
                    request = connection.recv(65_536)
                except TimeoutError:
                    continue
                if not request:
                    return
                connection.sendall(self.answer(request))

    def end(self):
        self.ended.set()
        # Wakes the one that accepts.
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        for thread in self.threads:
            thread.join()


def answer_as_old(request):
    """Redis before 6.2, as far as the clients here ask: it does not know RESET. Requests come whole."""
    answers, lines = b"", request.split(b"\r\n")
    while len(lines) > 1:
        count = int(lines[0][1:])
        words, lines = lines[2:1 + 2 * count:2], lines[1 + 2 * count:]
        if words[0].upper() == b"GET" and words[1].startswith(b"user:"):
            value = b"value-" + words[1][5:]
            answers += b"$%d\r\n%s\r\n" % (len(value), value)
        elif words[0].upper() == b"GET":
            answers += b"$5\r\nright\r\n"
        elif words[0].upper() == b"PING":
            answers += b"+PONG\r\n"
        else:
            answers += b"-ERR unknown command `%s`, with args beginning with: \r\n" % words[0]
    return answers


class Faults:
    """One after the other. What is wrong with itself is in `failed`."""

    def __init__(self, redis, draw):
        self.redis, self.draw, self.failed = redis, draw, None
        #: From when to when, and what: the last one may still be going on.
        self.spans = []
        self.kinds = {"killed": self._kill, "restarted": self.redis.restart, "stopped": self._stop_for_a_while, "asleep": self._sleep,
                      "dropped": self.redis.drop_clients, "older": self._exchange_for_old, "nonsense": self._exchange_for_nonsense}

    def run(self, askers):
        """As long as somebody asks. In the thread that goes on to the end: a server ends with the one that has started it."""
        try:
            while any(asker.is_alive() for asker in askers):
                time.sleep(self.draw.uniform(*BETWEEN_S))
                missing = [kind for kind in self.kinds if kind not in self.counts()]
                kind = self.draw.choice(missing or list(self.kinds))
                span = [time.monotonic(), None, kind]
                self.spans.append(span)
                self.kinds[kind]()
                span[1] = time.monotonic()
        except (OSError, ValueError, fpm.Failed) as error:
            self.failed = f"{self.spans[-1][2]}: {error}"

    def are_enough(self):
        """Each kind was there, or there will be no more."""
        return self.failed or len(self.counts()) == len(self.kinds)

    def counts(self):
        return collections.Counter(kind for _, end, kind in list(self.spans) if end)

    def during(self, begin, end):
        """What went on at some moment between these two."""
        return {kind for since, until, kind in list(self.spans) if since <= end and (until is None or until >= begin)}

    def _kill(self):
        self.redis.process.kill()
        self.redis.process.wait()
        time.sleep(self.draw.uniform(0, OTHER_S))
        self.redis.start()

    def _stop_for_a_while(self):
        os.kill(self.redis.process.pid, signal.SIGSTOP)
        time.sleep(self.draw.uniform(0.001, STILL_S))
        os.kill(self.redis.process.pid, signal.SIGCONT)

    def _sleep(self):
        self.redis.ask("DEBUG", "SLEEP", f"{self.draw.uniform(0.001, STILL_S):.3f}")

    def _exchange_for(self, answer):
        self.redis.stop()
        impostor = Impostor(self.redis.port, answer)
        time.sleep(OTHER_S)
        impostor.end()
        self.redis.start()

    def _exchange_for_old(self):
        self._exchange_for(answer_as_old)

    def _exchange_for_nonsense(self):
        saying = self.draw.choice(NONSENSE)
        self._exchange_for(lambda _: saying)


class Asking(threading.Thread):
    """Asks both pools in turns, and notes what came and when."""

    def __init__(self, port, clients, draw, left, faults):
        super().__init__()
        self.pages = {way: Pages(port, f"{way}-many") for way in ("kept", "plain")}
        self.clients, self.draw, self.left, self.faults = clients, draw, left, faults
        self.answers, self.failed = [], None

    def run(self):
        try:
            while self.left() or not self.faults.are_enough():
                client, number = self.draw.choice(self.clients), self.draw.randrange(USERS)
                for way in self.draw.sample(list(self.pages), 2):
                    begin = time.monotonic()
                    answer = self.pages[way].ask("user", client=client, number=number)
                    self.answers.append((way, client, begin, time.monotonic(), answer, f"value-{number}"))
        except fpm.Failed as error:
            self.failed = str(error)


def judge(answer, expected, meanwhile):
    """Right; failed, because of what went on meanwhile; or wrong."""
    if answer.get("value") == expected:
        return "right"
    # What a program says that is no Redis is what a client gets, with us and without.
    is_failure = "error" in answer or answer.get("value") in (None, False) or "nonsense" in meanwhile
    return "failed" if meanwhile and is_failure else "wrong"


def run_faults(checks, redis, port, clients, draw, count):
    lock, asked = threading.Lock(), 0

    def left():
        nonlocal asked
        with lock:
            asked += 1
            return asked <= count // 2

    faults = Faults(redis, draw)
    askers = [Asking(port, clients, draw, left, faults) for _ in range(ASKING)]
    for asker in askers:
        asker.start()
    faults.run(askers)
    for asker in askers:
        asker.join()
    counted, wrong = collections.Counter(), []
    for asker in askers:
        for way, client, begin, end, answer, expected in asker.answers:
            meanwhile = faults.during(begin, end)
            found = judge(answer, expected, meanwhile)
            counted[way, found] += 1
            if found == "wrong":
                wrong.append(f"{way} {client}: {answer} and not {expected}, meanwhile {sorted(meanwhile)}")
    broken = [failed for failed in (faults.failed, *(asker.failed for asker in askers)) if failed]
    checks.check("the faults and those who ask run to their end", not broken, "; ".join(broken))
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(faults.counts().items()))
    checks.check("no answer is wrong while the server is hindered", not wrong, "; ".join(wrong[:3]))
    check_after(checks, port, clients)
    total = sum(counted.values())
    figure = (f"{len(wrong)} wrong of {total} requests with {sum(faults.counts().values())} faults ({kinds}); "
              f"{counted['kept', 'failed']} of {sum(number for (way, _), number in counted.items() if way == 'kept')} failed meanwhile, "
              f"{counted['plain', 'failed']} without kept connections")
    return figure


def check_after(checks, port, clients):
    """All is as before, and connections are kept again: one that was there answers once more."""
    page = Pages(port, "kept-many")
    for name in clients:
        limit, seen, answer = time.monotonic() + fpm.PATIENCE_S, set(), {}
        # A server that did not know the reset is asked again after a while.
        while answer.get("id") not in seen and time.monotonic() < limit:
            seen.add(answer.get("id"))
            answer = page.ask("see", client=name)
        checks.check(f"{name}, after the faults: kept again", answer.get("value") == "right" and answer["id"] in seen, str(answer))
