"""Asks a php-fpm that listens at a Unix socket for one script, and prints what it answers. usage: request.py SOCKET SCRIPT"""

import socket
import struct
import sys

BEGIN, END, PARAMS, STDIN, STDOUT, STDERR = 1, 3, 4, 5, 6, 7


def record(kind, content):
    return struct.pack("!BBHHBB", 1, kind, 1, len(content), 0, 0) + content


def main(path, script):
    parameters = b""
    for name, value in {"SCRIPT_FILENAME": script, "REQUEST_METHOD": "GET", "SCRIPT_NAME": "/", "REQUEST_URI": "/"}.items():
        parameters += struct.pack("!BI", len(name), len(value) | 1 << 31) + name.encode() + value.encode()
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(60)
    connection.connect(path)
    connection.sendall(record(BEGIN, struct.pack("!HB5x", 1, 0)) + record(PARAMS, parameters) + record(PARAMS, b"") + record(STDIN, b""))
    stream = connection.makefile("rb")
    while True:
        _, kind, _, length, padding, _ = struct.unpack("!BBHHBB", stream.read(8))
        content = stream.read(length + padding)[:length]
        if kind in (STDOUT, STDERR):
            sys.stdout.buffer.write(content)
        if kind == END:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
