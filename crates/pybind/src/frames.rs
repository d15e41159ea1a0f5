//! `FrameInfo` objects: one for each place in the code, made when it is met first and shared by all results.

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use rustc_hash::FxHashMap;
use slip_cpython::{CodeId, CodeText, LineFormat, Point, location_at};
use slip_model::{Interner, StringId};

use crate::types::{Types, new_struct};

/// Longest name or path that is shown, in characters, and longest table that places are taken from: as CPython 3.15 has them.
const MAX_TEXT_CHARS: usize = 1_024;
const MAX_TABLE_BYTES: usize = 64 * 1_024;

/// Most objects kept; beyond, all are made anew.
const MAX_FRAMES: usize = 256 * 1_024;
const MAX_CODES: usize = 64 * 1_024;

/// What stands for a frame that has no code of Python.
const SYNTHETIC_FILE: &str = "~";

/// A code object.
#[derive(Debug)]
struct Code {
    file: Py<PyString>,
    name: Py<PyString>,
    first_line: i32,
    table: Vec<u8>,
    format: LineFormat,
}

/// All that were made.
#[derive(Debug)]
pub(crate) struct Frames {
    types: &'static Types,
    with_opcodes: bool,
    codes: FxHashMap<CodeId, Code>,
    strings: FxHashMap<StringId, Py<PyString>>,
    frames: FxHashMap<Point, Py<PyAny>>,
    /// How many more objects may be made immortal.
    immortal_left: usize,
}

/// Most objects that are made immortal: they are never freed.
const MAX_IMMORTAL: usize = 4_096;

impl Frames {
    pub(crate) fn new(types: &'static Types, with_opcodes: bool) -> Self {
        Self {
            types,
            with_opcodes,
            codes: FxHashMap::default(),
            strings: FxHashMap::default(),
            frames: FxHashMap::default(),
            immortal_left: MAX_IMMORTAL,
        }
    }

    /// Whether there are so many that it is better to begin anew.
    pub(crate) fn are_too_many(&self) -> bool {
        self.frames.len() > MAX_FRAMES || self.codes.len() > MAX_CODES
    }

    /// How many code objects were read.
    pub(crate) fn codes_read(&self) -> u64 {
        self.codes.len() as u64
    }

    /// Takes what is said of code objects that were met first.
    pub(crate) fn learn(&mut self, py: Python<'_>, interner: &Interner, texts: &mut Vec<CodeText>) {
        for text in texts.drain(..) {
            let mut string = |id: StringId| {
                let make = || {
                    let text = interner.text(id);
                    let end = text.char_indices().nth(MAX_TEXT_CHARS).map_or(text.len(), |(at, _)| at);
                    PyString::new(py, &text[..end]).unbind()
                };
                self.strings.entry(id).or_insert_with(make).clone_ref(py)
            };
            let (file, name) = (string(text.file), string(text.name));
            let (mut table, mut format) = (text.table, text.format);
            if table.len() > MAX_TABLE_BYTES {
                table.clear();
                format = LineFormat::NONE;
            }
            self.codes.insert(text.id, Code { file, name, first_line: text.first_line, table, format });
        }
    }

    /// The object for a point: the same for the same one.
    ///
    /// One `of_deep_stack` is made immortal where the interpreter can do that (3.15 on): copying a long list means counting one
    /// reference more for each of its items, and one less when the copy goes, which takes longer than all else.
    pub(crate) fn get<'py>(
        &mut self,
        py: Python<'py>,
        point: Point,
        of_deep_stack: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(frame) = self.frames.get(&point) {
            return Ok(frame.bind(py).clone());
        }
        let frame = self.make(py, point)?;
        if of_deep_stack && self.immortal_left > 0 && make_immortal(&frame) {
            self.immortal_left -= 1;
        }
        self.frames.insert(point, frame.clone().unbind());
        Ok(frame)
    }

    fn make<'py>(&self, py: Python<'py>, point: Point) -> PyResult<Bound<'py, PyAny>> {
        let none = || py.None().into_bound(py);
        let synthetic = |name: &str| {
            let text = |text: &str| PyString::intern(py, text).into_any();
            new_struct(self.types.frame.bind(py), [text(SYNTHETIC_FILE), none(), text(name), none()])
        };
        let (code, offset, opcode) = match point {
            Point::Native => return synthetic("<native>"),
            Point::Gc => return synthetic("<GC>"),
            Point::Unreadable => return synthetic("<unreadable>"),
            Point::Code { code, offset, opcode } => (self.codes.get(&code), offset, opcode),
        };
        let Some(code) = code else { return synthetic("<unreadable>") };
        let location = match location_at(code.format, &code.table, code.first_line, offset) {
            None => none(),
            Some(location) => {
                let number = |number: Option<u32>| PyInt::new(py, number.map_or(-1, i64::from)).into_any();
                let items = [location.line, location.end_line, location.column, location.end_column];
                new_struct(self.types.location.bind(py), items.map(number))?
            }
        };
        let opcode = if self.with_opcodes { PyInt::new(py, opcode).into_any() } else { none() };
        let text = |text: &Py<PyString>| text.bind(py).clone().into_any();
        new_struct(self.types.frame.bind(py), [text(&code.file), location, text(&code.name), opcode])
    }
}

/// `PyUnstable_SetImmortal` of CPython 3.15, which is in no stable interface. False if there is none, or it refuses.
fn make_immortal(object: &Bound<'_, PyAny>) -> bool {
    type SetImmortal = unsafe extern "C" fn(*mut pyo3::ffi::PyObject) -> std::ffi::c_int;
    static FOUND: std::sync::OnceLock<Option<SetImmortal>> = std::sync::OnceLock::new();
    let found = FOUND.get_or_init(|| {
        // SAFETY: a lookup by name among what is loaded.
        let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyUnstable_SetImmortal".as_ptr()) };
        // SAFETY: the function of this name has this signature, and a null pointer is `None`.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, Option<SetImmortal>>(symbol) }
    });
    // SAFETY: we hold the only reference to the object, and the interpreter's lock.
    found.is_some_and(|set| unsafe { set(object.as_ptr()) } == 1)
}
