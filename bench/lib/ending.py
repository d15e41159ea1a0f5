"""How a measurement ends that is told to."""

import signal
import sys


def end_by_exception(*signals):
    """Servers are stopped and folders deleted on the way out. Also where the shell has a signal ignored."""
    for number in signals:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
