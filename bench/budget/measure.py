"""Measures for `bench/budget/run`, which see."""

import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
# pylint: disable=wrong-import-position
from boot import boot
from cost import cost, cost_wordpress
from sums import sums


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    for name, slices in ("cost", 600), ("cost-wordpress", 330):
        of_cost = commands.add_parser(name)
        of_cost.add_argument("--slices", type=int, default=slices)
    of_sums = commands.add_parser("sums")
    of_sums.add_argument("--seconds", type=float, default=10)
    of_sums.add_argument("--service", action="append", choices=["wordpress", "symfony", "gunicorn", "asyncio"])
    of_boot = commands.add_parser("boot")
    of_boot.add_argument("--seconds", type=float, default=30)
    of_boot.add_argument("--service", action="append", choices=["wordpress", "symfony"])
    options = parser.parse_args()
    return {"cost": cost, "cost-wordpress": cost_wordpress, "sums": sums, "boot": boot}[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
