//! What the stable interface tells only slowly, or not at all, read from where CPython has it: how many hold an object, and which items
//! a list has.
//!
//! Both are at the same places in every CPython that can load this module: 3.9 to 3.15 with a GIL, 64 bits, little endian. An object
//! begins with its count, a `Py_ssize_t` up to [3.11](https://github.com/python/cpython/blob/v3.11.7/Include/object.h). From
//! [3.12](https://github.com/python/cpython/blob/v3.12.1/Include/object.h) on only the lower half of that counts, and in
//! [3.14](https://github.com/python/cpython/blob/v3.14.0/Include/object.h) the upper half has become flags; extensions that were
//! built for the stable interface of 3.9 count in that place themselves, so that it cannot move. A list goes on with its type, its length
//! and the address of its items ([3.9](https://github.com/python/cpython/blob/v3.9.18/Include/cpython/listobject.h),
//! [3.14](https://github.com/python/cpython/blob/v3.14.0/Include/cpython/listobject.h)). Builds without a GIL, where both differ, take no
//! module of the stable interface of 3.9.
//!
//! An immortal object (3.12 on) has a count of 2³¹ and more, which is taken for that of an object that many hold. No list or structure of a
//! result is made immortal.
//!
//! [`is_as_known`] tries all that on a list of its own: a build that has it otherwise, such as one with `Py_TRACE_REFS`, is noticed.

use std::slice;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

/// How each object begins.
#[repr(C)]
struct ObjectHead {
    references: u32,
    flags: u32,
    of: *const ffi::PyTypeObject,
}

/// How a list begins.
#[repr(C)]
struct ListHead {
    object: ObjectHead,
    len: ffi::Py_ssize_t,
    /// Null if there are none.
    items: *const usize,
}

/// How many references to an object there are, ours among them.
pub(crate) fn references<T>(_: Python<'_>, object: &Py<T>) -> u32 {
    let head = object.as_ptr().cast::<ObjectHead>();
    // SAFETY: it lives, as we hold it, and nobody counts meanwhile, as we have the interpreter's lock.
    unsafe { (*head).references }
}

/// The addresses of the items of a list. They hold until code of the interpreter runs or a list is changed.
fn addresses<'a>(_: Python<'a>, list: &'a Py<PyList>) -> &'a [usize] {
    let head = list.as_ptr().cast::<ListHead>();
    // SAFETY: it is a list and lives, as we hold it, and nobody changes it meanwhile, as we have the interpreter's lock.
    let ListHead { len, items, .. } = unsafe { head.read() };
    match usize::try_from(len) {
        Ok(len @ 1..) => {
            // SAFETY: a list that is not empty has the addresses of that many items there, and keeps them while we have the lock.
            unsafe { slice::from_raw_parts(items, len) }
        }
        _ => &[],
    }
}

/// Whether these are the items of a list: the very same objects, in this order.
pub(crate) fn has_items(py: Python<'_>, list: &Py<PyList>, items: &[Py<PyAny>]) -> bool {
    // SAFETY: `Py` is transparent, and nothing but the address of its object.
    let items = unsafe { slice::from_raw_parts(items.as_ptr().cast::<usize>(), items.len()) };
    addresses(py, list) == items
}

/// Whether two lists have the very same objects as items, in the same order.
pub(crate) fn have_same_items(py: Python<'_>, one: &Py<PyList>, other: &Py<PyList>) -> bool {
    addresses(py, one) == addresses(py, other)
}

/// Whether the interpreter that we run in has it all where we look for it.
pub(crate) fn is_as_known(py: Python<'_>) -> bool {
    static KNOWN: PyOnceLock<bool> = PyOnceLock::new();
    *KNOWN.get_or_init(py, || is_found(py).unwrap_or(false))
}

fn is_found(py: Python<'_>) -> PyResult<bool> {
    if !cfg!(all(target_endian = "little", target_pointer_width = "64")) {
        return Ok(false);
    }
    let items = [PyList::empty(py).into_any().unbind(), PyList::empty(py).into_any().unbind()];
    let list = PyList::new(py, &items)?.unbind();
    let once = references(py, &list);
    let again = list.clone_ref(py);
    let twice = references(py, &list);
    drop(again);
    // In this order: what is no list's length is no reason to look for its items.
    let counts = (once, twice, references(py, &list), references(py, &items[0]));
    Ok(counts == (1, 2, 1, 2) && has_items(py, &list, &items) && !has_items(py, &list, &items[..1]))
}
