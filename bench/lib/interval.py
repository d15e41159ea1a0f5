"""What is quoted of repeated measurements."""

import math
import statistics


def middle(values):
    """The median and the interval that holds it with 95 %, by order."""
    values = sorted(values)
    half = 0.98 * math.sqrt(len(values))
    low, high = int(len(values) / 2 - half), math.ceil(len(values) / 2 + half)
    return statistics.median(values), values[max(low, 0)], values[min(high, len(values) - 1)]


def text(found, digits=2):
    return "{:.{d}f} [{:.{d}f}, {:.{d}f}]".format(*found, d=digits)
