"""Slipstream for Python: reads the stacks of other Python processes, of any version from any version.

``RemoteUnwinder`` has the surface of ``_remote_debugging.RemoteUnwinder`` of CPython 3.15. It neither stops the process it reads nor
writes into it.
"""

from slipstream._native import (
    PROCESS_VM_READV_SUPPORTED,
    THREAD_STATUS_GIL_REQUESTED,
    THREAD_STATUS_HAS_EXCEPTION,
    THREAD_STATUS_HAS_GIL,
    THREAD_STATUS_MAIN_THREAD,
    THREAD_STATUS_ON_CPU,
    THREAD_STATUS_UNKNOWN,
    RemoteUnwinder,
    __version__,
    get_child_pids,
    get_gc_stats,
    is_python_process,
)
from slipstream._native import result_type as _result_type

_RESULT_TYPES = (
    "AwaitedInfo",
    "CoroInfo",
    "FrameInfo",
    "GCStatsInfo",
    "InterpreterInfo",
    "LocationInfo",
    "TaskInfo",
    "ThreadInfo",
)

__all__ = [
    "PROCESS_VM_READV_SUPPORTED",
    "THREAD_STATUS_GIL_REQUESTED",
    "THREAD_STATUS_HAS_EXCEPTION",
    "THREAD_STATUS_HAS_GIL",
    "THREAD_STATUS_MAIN_THREAD",
    "THREAD_STATUS_ON_CPU",
    "THREAD_STATUS_UNKNOWN",
    "RemoteUnwinder",
    "__version__",
    "get_child_pids",
    "get_gc_stats",
    "is_python_process",
    *_RESULT_TYPES,
]


def __getattr__(name):
    # Not with the import, which may be a part of that of the interpreter's own module.
    if name in _RESULT_TYPES:
        return _result_type(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
