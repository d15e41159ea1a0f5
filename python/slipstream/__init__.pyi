from typing import NamedTuple, Optional

__version__: str

PROCESS_VM_READV_SUPPORTED: int
THREAD_STATUS_HAS_GIL: int
THREAD_STATUS_ON_CPU: int
THREAD_STATUS_UNKNOWN: int
THREAD_STATUS_GIL_REQUESTED: int
THREAD_STATUS_HAS_EXCEPTION: int
THREAD_STATUS_MAIN_THREAD: int

class LocationInfo(NamedTuple):
    """Where in the source an instruction comes from; -1 for what is not known."""

    lineno: int
    end_lineno: int
    col_offset: int
    end_col_offset: int

class FrameInfo(NamedTuple):
    """A frame; ``location`` is None for a synthetic one (``<GC>``, ``<native>``)."""

    filename: str
    location: Optional[LocationInfo]
    funcname: str
    opcode: Optional[int]

class ThreadInfo(NamedTuple):
    """A thread; ``status`` has ``THREAD_STATUS_`` flags, the innermost frame comes first."""

    thread_id: int
    status: int
    frame_info: list[FrameInfo]

class InterpreterInfo(NamedTuple):
    """An interpreter with its threads."""

    interpreter_id: int
    threads: list[ThreadInfo]

class CoroInfo(NamedTuple):
    """A coroutine, and the task that it belongs to."""

    call_stack: list[FrameInfo]
    task_name: int | str

class TaskInfo(NamedTuple):
    """A task of asyncio."""

    task_id: int
    task_name: str
    coroutine_stack: list[CoroInfo]
    awaited_by: list[CoroInfo]

class AwaitedInfo(NamedTuple):
    """The tasks of a thread."""

    thread_id: int
    awaited_by: list[TaskInfo]

class GCStatsInfo(NamedTuple):
    """What a garbage collection has left; the counts are of all collections of its generation up to it."""

    gen: int
    iid: int
    ts_start: int
    ts_stop: int
    collections: int
    collected: int
    uncollectable: int
    candidates: int
    heap_size: int
    duration: float

class RemoteUnwinder:
    """Reads the stacks of another Python process, which is neither stopped nor written to.

    Raises ``RuntimeError`` if the process does not run a CPython that is known, ``PermissionError`` if it may not be read.
    """

    def __new__(
        cls,
        pid: int,
        *,
        all_threads: bool = False,
        only_active_thread: bool = False,
        mode: int = 0,
        debug: bool = False,
        skip_non_matching_threads: bool = True,
        native: bool = False,
        gc: bool = False,
        opcodes: bool = False,
        cache_frames: bool = False,
        stats: bool = False,
    ) -> RemoteUnwinder: ...
    def get_stack_trace(self) -> list[InterpreterInfo]:
        """The stacks of the threads that were asked for.

        Raises ``RuntimeError`` if the target changed so fast that no stack can be told, ``ProcessLookupError`` if it has ended.
        """

    def get_all_awaited_by(self) -> list[AwaitedInfo]:
        """All tasks of asyncio and who waits for each, a list for each thread and one, with thread 0, for those whose thread has ended.

        CPython 3.14 on. Raises ``RuntimeError`` if asyncio has not been imported, or its tasks changed while they were read.
        """

    def get_async_stack_trace(self) -> list[AwaitedInfo]:
        """The running task of each thread that has one, and those that wait for it, directly or through others."""

    def pause_threads(self) -> bool:
        """Stops all threads of the process; False if they are stopped already."""

    def resume_threads(self) -> bool:
        """Lets them run on; False if they were not stopped."""

    def get_stats(self) -> dict[str, int | float]:
        """What was read and what was kept; ``RuntimeError`` without ``stats=True``."""

def is_python_process(pid: int) -> bool:
    """Whether the process runs a CPython that can be read."""

def get_child_pids(pid: int, *, recursive: bool = True) -> list[int]:
    """The processes that a process has started; with ``recursive`` also those that they have started."""

def get_gc_stats(pid: int, *, all_interpreters: bool = False) -> list[GCStatsInfo]:
    """What the last garbage collections of a process have left, of its main interpreter or of all; CPython 3.15 on.

    Each interpreter keeps the last eleven collections of the young generation and three of each older one; entries that were not needed
    yet are all 0. Raises ``RuntimeError`` if the process does not run a CPython that keeps them or collected while it was read,
    ``PermissionError`` if it may not be read.
    """
