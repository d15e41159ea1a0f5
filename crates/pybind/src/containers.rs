//! The lists that are handed out: fresh each time, so that a caller may do with them what it likes.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyString};
use slip_cpython::{Point, TaskList};
use slip_remote::RemoteAddr;

use crate::frames::Frames;
use crate::types::{Types, new_struct};

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
        if self.tid != tid {
            self.tid = tid;
            self.tid_object = PyInt::new(py, tid).unbind();
        }
        if self.status != status {
            self.status = status;
            self.status_object = PyInt::new(py, status).unbind();
        }
        if self.points == points {
            return Ok(());
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

    fn to_object<'py>(&self, py: Python<'py>, types: &Types) -> PyResult<Bound<'py, PyAny>> {
        let frames = copy_of(self.frames.bind(py))?;
        let (tid, status) = (self.tid_object.bind(py).clone(), self.status_object.bind(py).clone());
        new_struct(types.thread.bind(py), [tid.into_any(), status.into_any(), frames.into_any()])
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

/// What `get_stack_trace` returns.
pub(crate) fn stack_trace<'py>(
    py: Python<'py>,
    types: &Types,
    interpreters: &[SeenInterpreter],
    threads: &[SeenThread],
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for interpreter in interpreters {
        let of_it = PyList::empty(py);
        for thread in &threads[interpreter.threads.clone()] {
            of_it.append(thread.to_object(py, types)?)?;
        }
        let id = interpreter.id.bind(py).clone().into_any();
        list.append(new_struct(types.interpreter.bind(py), [id, of_it.into_any()])?)?;
    }
    Ok(list)
}

/// The tasks of a thread as they were seen last.
#[derive(Debug)]
pub(crate) struct SeenTaskList {
    tid: Py<PyInt>,
    tasks: Vec<SeenTask>,
}

#[derive(Debug)]
struct SeenTask {
    name: Py<PyString>,
    own: SeenCoroutine,
    awaited_by: Vec<SeenCoroutine>,
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

    fn to_object<'py>(&self, py: Python<'py>, types: &Types) -> PyResult<Bound<'py, PyAny>> {
        let frames = copy_of(self.frames.bind(py))?.into_any();
        new_struct(types.coroutine.bind(py), [frames, self.addr.bind(py).clone().into_any()])
    }
}

impl SeenTaskList {
    pub(crate) fn new(py: Python<'_>, frames: &mut Frames, list: &TaskList) -> PyResult<Self> {
        let mut tasks = Vec::with_capacity(list.tasks.len());
        for task in &list.tasks {
            let name = PyString::new(py, &task.name).unbind();
            let own = SeenCoroutine::new(py, frames, task.addr, &task.stack)?;
            let waiters = task.awaited_by.iter();
            let awaited_by = waiters.map(|(addr, points)| SeenCoroutine::new(py, frames, *addr, points));
            tasks.push(SeenTask { name, own, awaited_by: awaited_by.collect::<PyResult<_>>()? });
        }
        Ok(Self { tid: PyInt::new(py, list.native_tid).unbind(), tasks })
    }

    fn to_object<'py>(&self, py: Python<'py>, types: &Types) -> PyResult<Bound<'py, PyAny>> {
        let tasks = PyList::empty(py);
        for task in &self.tasks {
            let own = PyList::empty(py);
            own.append(task.own.to_object(py, types)?)?;
            let awaited_by = PyList::empty(py);
            for waiter in &task.awaited_by {
                awaited_by.append(waiter.to_object(py, types)?)?;
            }
            let (addr, name) = (task.own.addr.bind(py).clone(), task.name.bind(py).clone());
            let items = [addr.into_any(), name.into_any(), own.into_any(), awaited_by.into_any()];
            tasks.append(new_struct(types.task.bind(py), items)?)?;
        }
        new_struct(types.awaited.bind(py), [self.tid.bind(py).clone().into_any(), tasks.into_any()])
    }
}

/// What `get_all_awaited_by` and `get_async_stack_trace` return.
pub(crate) fn task_lists<'py>(
    py: Python<'py>,
    types: &Types,
    lists: &[SeenTaskList],
) -> PyResult<Bound<'py, PyList>> {
    let all = PyList::empty(py);
    for list in lists {
        all.append(list.to_object(py, types)?)?;
    }
    Ok(all)
}

/// Another list with the same items.
fn copy_of<'py>(list: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyList>> {
    // SAFETY: it is a list.
    let copy = unsafe { ffi::PyList_GetSlice(list.as_ptr(), 0, ffi::PY_SSIZE_T_MAX) };
    // SAFETY: a new reference, or null with an error set.
    let copy = unsafe { Bound::from_owned_ptr_or_err(list.py(), copy) }?;
    Ok(copy.cast_into::<PyList>()?)
}
