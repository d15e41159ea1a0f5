"""Stands in front of CPython 3.15's own module: all of it, but with our RemoteUnwinder.

The extension itself has to stay in sys.modules, under its own name: its parts look their state up there. Each class that is made is
noted in the file that SLIPSTREAM_SHIM_LOG names, so that a test can tell whose class was used.
"""

import importlib.machinery
import importlib.util
import os
import sys

_name = "_remote_debugging"
_finder = [path for path in sys.path if path.endswith("lib-dynload")]
_found = importlib.machinery.PathFinder.find_spec(_name, _finder)
_stock = importlib.util.module_from_spec(_found)
_found.loader.exec_module(_stock)
sys.modules[_name] = _stock

from slipstream import RemoteUnwinder as _Ours  # noqa: E402 (the module it stands for must be there)


class RemoteUnwinder:
    def __new__(cls, *args, **options):
        log = os.environ.get("SLIPSTREAM_SHIM_LOG")
        if log:
            with open(log, "a") as file:
                file.write(f"{os.getpid()} {_Ours.__module__}\n")
        return _Ours(*args, **options)


_stock.RemoteUnwinder = RemoteUnwinder
