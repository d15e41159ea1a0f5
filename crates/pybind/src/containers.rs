//! What was seen last, as objects, and the lists and structures that are handed out.

use std::mem;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyString};
use slip_cpython::{Point, Task, TaskList};
use slip_remote::RemoteAddr;

use crate::frames::Frames;
use crate::results::{Member, Notes, SeenGroup, Version};
use crate::types::Types;

/// Copying a list of more frames than this takes longer than all else that a call does.
const DEEP: usize = 100;

/// A thread as it was seen last.
#[derive(Debug)]
pub(crate) struct SeenThread {
    pub(crate) key: RemoteAddr,
    pub(crate) tid: u64,
    tid_object: Py<PyInt>,
    pub(crate) status: u32,
    status_object: Py<PyInt>,
    points: Vec<Point>,
    /// What the points are. Never handed out.
    frames: Py<PyList>,
    version: Version,
}

impl SeenThread {
    pub(crate) fn new(py: Python<'_>, key: RemoteAddr) -> Self {
        let zero = PyInt::new(py, 0).unbind();
        Self {
            key,
            tid: 0,
            tid_object: zero.clone_ref(py),
            status: 0,
            status_object: zero,
            points: Vec::new(),
            frames: PyList::empty(py).unbind(),
            version: Version::next(),
        }
    }

    /// Takes what is seen of it now.
    pub(crate) fn update(
        &mut self,
        py: Python<'_>,
        frames: &mut Frames,
        (tid, status): (u64, u32),
        points: &[Point],
    ) -> PyResult<()> {
        if (self.tid, self.status) == (tid, status) && self.points == points {
            return Ok(());
        }
        self.version = Version::next();
        if self.tid != tid {
            self.tid = tid;
            self.tid_object = PyInt::new(py, tid).unbind();
        }
        if self.status != status {
            self.status = status;
            self.status_object = PyInt::new(py, status).unbind();
        }
        let same = self.points.iter().rev().zip(points.iter().rev()).take_while(|(a, b)| a == b).count();
        let old = self.frames.bind(py);
        let (new, from) = (points.len() - same, old.len() - same);
        // SAFETY: a new list of that length, which nobody else sees before all of its items are set.
        let list = unsafe { ffi::PyList_New(points.len() as ffi::Py_ssize_t) };
        // SAFETY: a new reference, or null with an error set.
        let list = unsafe { Bound::from_owned_ptr_or_err(py, list) }?;
        let is_deep = points.len() > DEEP;
        for (at, point) in points.iter().enumerate() {
            let frame =
                if at < new { frames.get(py, *point, is_deep)? } else { old.get_item(from + at - new)? };
            // SAFETY: the list has room for it, and takes over the reference.
            unsafe { ffi::PyList_SetItem(list.as_ptr(), at as ffi::Py_ssize_t, frame.into_ptr()) };
        }
        self.frames = list.cast_into::<PyList>()?.unbind();
        self.points.clear();
        self.points.extend_from_slice(points);
        Ok(())
    }
}

impl Member for SeenThread {
    fn version(&self) -> Version {
        self.version
    }

    fn to_object<'py>(
        &self,
        py: Python<'py>,
        types: &Types,
        notes: &mut Notes,
    ) -> PyResult<Bound<'py, PyAny>> {
        let frames = copy_of(self.frames.bind(py))?;
        notes.add_frames(&frames, &self.frames);
        let (tid, status) = (self.tid_object.bind(py).clone(), self.status_object.bind(py).clone());
        notes.structure(types.thread.bind(py), [tid.into_any(), status.into_any(), frames.into_any()])
    }
}

/// An interpreter as it was seen last.
#[derive(Debug)]
pub(crate) struct SeenInterpreter {
    /// Its id, and the object for that.
    pub(crate) number: u64,
    pub(crate) id: Py<PyInt>,
    /// The numbers of its threads.
    pub(crate) threads: std::ops::Range<usize>,
}

impl SeenInterpreter {
    pub(crate) fn group<'a>(&'a self, threads: &'a [SeenThread]) -> SeenGroup<'a, SeenThread> {
        (&self.id, &threads[self.threads.clone()])
    }
}

/// The tasks of a thread as they were seen last.
#[derive(Debug)]
pub(crate) struct SeenTaskList {
    /// The thread's number, and the object for that.
    native_tid: u64,
    tid: Py<PyInt>,
    tasks: Vec<SeenTask>,
}

#[derive(Debug)]
pub(crate) struct SeenTask {
    task: Task,
    name: Py<PyString>,
    own: SeenCoroutine,
    awaited_by: Vec<SeenCoroutine>,
    version: Version,
}

/// The stack of a task, and the task's address. The list is never handed out.
#[derive(Debug)]
struct SeenCoroutine {
    addr: Py<PyInt>,
    frames: Py<PyList>,
}

impl SeenCoroutine {
    fn new(py: Python<'_>, frames: &mut Frames, addr: RemoteAddr, points: &[Point]) -> PyResult<Self> {
        let list = PyList::empty(py);
        for point in points {
            list.append(frames.get(py, *point, false)?)?;
        }
        Ok(Self { addr: PyInt::new(py, addr.0).unbind(), frames: list.unbind() })
    }

    fn to_object<'py>(
        &self,
        py: Python<'py>,
        types: &Types,
        notes: &mut Notes,
    ) -> PyResult<Bound<'py, PyAny>> {
        let frames = copy_of(self.frames.bind(py))?;
        notes.add_frames(&frames, &self.frames);
        notes.structure(types.coroutine.bind(py), [frames.into_any(), self.addr.bind(py).clone().into_any()])
    }
}

impl SeenTask {
    fn new(py: Python<'_>, frames: &mut Frames, task: &Task) -> PyResult<Self> {
        let waiters = task.awaited_by.iter();
        let awaited_by = waiters.map(|(addr, points)| SeenCoroutine::new(py, frames, *addr, points));
        let awaited_by = awaited_by.collect::<PyResult<_>>()?;
        Ok(Self {
            name: PyString::new(py, &task.name).unbind(),
            own: SeenCoroutine::new(py, frames, task.addr, &task.stack)?,
            awaited_by,
            task: task.clone(),
            version: Version::next(),
        })
    }
}

impl Member for SeenTask {
    fn version(&self) -> Version {
        self.version
    }

    fn to_object<'py>(
        &self,
        py: Python<'py>,
        types: &Types,
        notes: &mut Notes,
    ) -> PyResult<Bound<'py, PyAny>> {
        let own = PyList::empty(py);
        own.append(self.own.to_object(py, types, notes)?)?;
        notes.add_own(&own);
        let awaited_by = PyList::empty(py);
        for waiter in &self.awaited_by {
            awaited_by.append(waiter.to_object(py, types, notes)?)?;
        }
        notes.add_own(&awaited_by);
        let (addr, name) = (self.own.addr.bind(py).clone(), self.name.bind(py).clone());
        let items = [addr.into_any(), name.into_any(), own.into_any(), awaited_by.into_any()];
        notes.structure(types.task.bind(py), items)
    }
}

/// How far ahead an earlier task is looked for: so many have ended since, one after the other in the list.
const MAX_AHEAD: usize = 16;

impl SeenTaskList {
    /// Takes what is seen of all lists now.
    pub(crate) fn update_all(
        all: &mut Vec<Self>,
        py: Python<'_>,
        frames: &mut Frames,
        lists: &[TaskList],
    ) -> PyResult<()> {
        all.truncate(lists.len());
        for (at, list) in lists.iter().enumerate() {
            if all.get(at).is_none_or(|seen| seen.native_tid != list.native_tid) {
                all.truncate(at);
                let tid = PyInt::new(py, list.native_tid).unbind();
                all.push(Self { native_tid: list.native_tid, tid, tasks: Vec::new() });
            }
            all[at].update(py, frames, &list.tasks)?;
        }
        Ok(())
    }

    fn update(&mut self, py: Python<'_>, frames: &mut Frames, tasks: &[Task]) -> PyResult<()> {
        let is_same = |(seen, task): (&SeenTask, &Task)| seen.task == *task;
        if self.tasks.len() == tasks.len() && self.tasks.iter().zip(tasks).all(is_same) {
            return Ok(());
        }
        // They stay in the same order.
        let mut old: Vec<Option<SeenTask>> = mem::take(&mut self.tasks).into_iter().map(Some).collect();
        let mut next = 0;
        self.tasks.reserve_exact(tasks.len());
        for task in tasks {
            let ahead = old[next..].iter().take(MAX_AHEAD);
            let found = ahead.flatten().position(|seen| seen.task.addr == task.addr);
            let seen = found.and_then(|at| {
                next += at + 1;
                old[next - 1].take()
            });
            self.tasks.push(match seen {
                Some(seen) if seen.task == *task => seen,
                _ => SeenTask::new(py, frames, task)?,
            });
        }
        Ok(())
    }

    pub(crate) fn group(&self) -> SeenGroup<'_, SeenTask> {
        (&self.tid, &self.tasks)
    }
}

/// Another list with the same items.
fn copy_of<'py>(list: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyList>> {
    // SAFETY: it is a list.
    let copy = unsafe { ffi::PyList_GetSlice(list.as_ptr(), 0, ffi::PY_SSIZE_T_MAX) };
    // SAFETY: a new reference, or null with an error set.
    let copy = unsafe { Bound::from_owned_ptr_or_err(list.py(), copy) }?;
    Ok(copy.cast_into::<PyList>()?)
}
