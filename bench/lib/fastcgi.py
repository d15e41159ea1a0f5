"""Requests to a pool of php-fpm, without a web server."""

import os
import socket
import statistics
import struct
import sys
import threading
import time


class FastCgi:
    """Asks php-fpm itself. A web server in between takes a twentieth of a request of 3 ms, which no worker has to do with."""

    BEGIN = struct.pack(">BBHHBx", 1, 1, 1, 8, 0) + struct.pack(">HB5x", 1, 0)
    NO_INPUT = struct.pack(">BBHHBx", 1, 5, 1, 0, 0)
    END = 3

    def __init__(self, path, front, pages):
        self.path, self.messages = path, [self.message(front, page) for page in pages]

    @classmethod
    def message(cls, front, page):
        values = {"SCRIPT_FILENAME": front, "SCRIPT_NAME": "/" + os.path.basename(front), "DOCUMENT_ROOT": os.path.dirname(front),
                  "REQUEST_URI": page, "QUERY_STRING": page.partition("?")[2], "REQUEST_METHOD": "GET", "SERVER_PROTOCOL": "HTTP/1.1", "SERVER_NAME": "localhost",
                  "SERVER_PORT": "80", "REMOTE_ADDR": "127.0.0.1", "HTTP_HOST": "localhost", "REDIRECT_STATUS": "200"}
        pairs = b"".join(bytes([len(key), len(value)]) + key.encode() + value.encode() for key, value in values.items())
        record = struct.pack(">BBHHBx", 1, 4, 1, len(pairs), 0) + pairs
        return cls.BEGIN + record + struct.pack(">BBHHBx", 1, 4, 1, 0, 0) + cls.NO_INPUT

    def ask(self, message):
        """For how long, in seconds."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.path)
            begin = time.perf_counter()
            connection.sendall(message)
            with connection.makefile("rb") as answer:
                kind, is_first = 0, True
                while kind != self.END:
                    _, kind, _, length, padding = struct.unpack(">BBHHBx", answer.read(8))
                    content = answer.read(length + padding)
                    if is_first and b"\r\nStatus:" in b"\r\n" + content[:200]:
                        sys.exit(f"error: the page is not there: {content[:200]}")
                    is_first = False
            return time.perf_counter() - begin

    def run(self, concurrency, seconds):
        end, took = time.monotonic() + seconds, []

        def work(number):
            while time.monotonic() < end:
                took.append(self.ask(self.messages[number % len(self.messages)]))
                number += 1

        threads = [threading.Thread(target=work, args=[number]) for number in range(concurrency)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(took), 1e3 * statistics.mean(took)
