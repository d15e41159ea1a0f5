"""Answers each line `PING MS` after so many milliseconds. It reads and answers as most servers do: it acknowledges late, and at once."""

import socketserver
import sys
import time


class Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        for line in self.rfile:
            wait_ms = int(line.split()[1])
            if wait_ms:
                time.sleep(wait_ms / 1000)
            self.wfile.write(b"+PONG\r\n")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
