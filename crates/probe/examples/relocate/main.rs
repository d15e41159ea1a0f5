//! Whether the objects of `bpf/` fit other kernels, by what these say of their types: `relocate [--object FILE] NAME=BTF...`
//!
//! Prints `ok NAME OBJECT: ...` or `not ok NAME OBJECT: lacks ...` for each kernel and each object that `build.rs` has compiled,
//! or for the one that is named.
//!
//! libbpf itself relocates, the same that the product loads with: `bpf_object__prepare` does all that loading does before the
//! programs go into the kernel, and `btf_custom_path` says for which kernel. A program that is relocated for another kernel must
//! not be given to this one, because the verifier would accept reads at places that mean nothing here. What cannot be relocated
//! libbpf does not refuse; it replaces the instruction by a call that no kernel knows, for the verifier to find where it can be
//! reached. We look for it there (`reach.rs`). The other things that a kernel's types tell of: the types of programs and maps,
//! the helpers that are called, the functions and tracepoints that programs are attached to. Not told are in which type of
//! program a helper is allowed, and anything that the verifier finds out: for that the kernel must run.

#![allow(clippy::print_stdout, reason = "this is the output of the command")]

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::{env, fs, io, slice};

use libbpf_rs::PrintLevel;
use libbpf_rs::btf::{Btf, BtfKind, BtfType, types};
use libbpf_sys as sys;

mod reach;

/// Where `build.rs` puts them.
const OBJECTS: &str = env!("OUT_DIR");
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf");

/// What libbpf says while it relocates.
static SAID: Mutex<String> = Mutex::new(String::new());

/// Maps are made in this kernel, as libbpf cannot relocate without them. It need not know their types: all become arrays.
const PLACEHOLDER_BYTES: u32 = 4;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, Box<dyn Error>> {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    let objects = if arguments.first().is_some_and(|first| first == "--object") && arguments.len() > 1 {
        arguments.drain(..2).skip(1).map(PathBuf::from).collect()
    } else {
        built_objects()?
    };
    libbpf_rs::set_print(Some((PrintLevel::Debug, |_, text| {
        if let Ok(mut said) = SAID.lock() {
            said.push_str(&text);
        }
    })));
    let mut kernels = Vec::new();
    for argument in &arguments {
        let (name, path) = argument.split_once('=').ok_or("usage: relocate [--object FILE] NAME=BTF...")?;
        kernels.push(Kernel { name, path, types: Btf::from_path(path)? });
    }
    let running = Btf::from_vmlinux()?;
    let mut all_fit = true;
    for kernel in &kernels {
        for object in &objects {
            let name = object.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
            let name = format!("{} {}", kernel.name, name.trim_end_matches(".bpf.o"));
            match check(kernel, &kernels, &running, object) {
                Ok(checked) if checked.lacks.is_empty() => {
                    println!(
                        "ok {name}: programs: {}, relocations: {}",
                        checked.programs, checked.relocations
                    );
                    continue;
                }
                Ok(checked) => println!("not ok {name}: lacks {}", Vec::from_iter(checked.lacks).join(", ")),
                Err(error) => println!("not ok {name}: {error}"),
            }
            all_fit = false;
        }
    }
    Ok(all_fit)
}

/// One for each source, and no older one whose source is gone.
fn built_objects() -> io::Result<Vec<PathBuf>> {
    let mut objects = Vec::new();
    for entry in fs::read_dir(SOURCES)? {
        let source = entry?.file_name();
        if let Some(theme) = source.to_string_lossy().strip_suffix(".bpf.c") {
            objects.push(Path::new(OBJECTS).join(format!("{theme}.bpf.o")));
        }
    }
    objects.sort();
    Ok(objects)
}

struct Kernel<'a> {
    name: &'a str,
    path: &'a str,
    types: Btf<'static>,
}

impl Kernel<'_> {
    /// The name of a value of an enumeration, if the kernel knows it.
    fn value_name(&self, enumeration: &str, value: i64) -> Option<String> {
        let values = self.types.type_by_name::<types::Enum<'_>>(enumeration)?;
        let name = values.iter().find(|known| known.value == value)?.name?.to_string_lossy().into_owned();
        // The end of a list that goes on in later kernels.
        (!name.starts_with("__")).then_some(name)
    }

    /// What a value that this kernel does not know is called by one that does.
    fn missing(&self, all: &[Kernel<'_>], enumeration: &str, value: i64) -> Option<String> {
        if self.value_name(enumeration, value).is_some() {
            return None;
        }
        let name = all.iter().find_map(|other| other.value_name(enumeration, value));
        Some(name.unwrap_or_else(|| format!("{enumeration} {value}")))
    }

    /// Also where a type of another kind has the same name.
    fn has(&self, kind: BtfKind, name: &str) -> bool {
        let name = OsStr::new(name);
        self.types
            .type_by_kind::<BtfType<'_>>()
            .any(|found| found.kind() == kind && found.name() == Some(name))
    }
}

#[derive(Default)]
struct Checked {
    programs: usize,
    relocations: usize,
    lacks: BTreeSet<String>,
}

fn check(
    kernel: &Kernel<'_>,
    all: &[Kernel<'_>],
    running: &Btf<'_>,
    path: &Path,
) -> Result<Checked, Box<dyn Error>> {
    let mut checked = Checked::default();
    let object = OpenObject::open(path, kernel.path)?;
    for map in object.maps() {
        checked.lacks.extend(kernel.missing(all, "bpf_map_type", make_placeholder(map)?.into()));
    }
    for program in object.programs() {
        // SAFETY: the program belongs to `object`, which is open.
        let kind = unsafe { sys::bpf_program__type(program.as_ptr()) };
        checked.lacks.extend(kernel.missing(all, "bpf_prog_type", kind.into()));
        // SAFETY: as above.
        let attach = unsafe { sys::bpf_program__expected_attach_type(program.as_ptr()) };
        checked.lacks.extend(kernel.missing(all, "bpf_attach_type", attach.into()));
        // SAFETY: as above.
        let result = unsafe { sys::bpf_program__set_autoload(program.as_ptr(), true) };
        succeeded(result, "an optional program cannot be chosen")?;
    }
    SAID.lock().map(|mut said| said.clear()).unwrap_or_default();
    // SAFETY: the object is open and has not been prepared before.
    let result = unsafe { sys::bpf_object__prepare(object.0.as_ptr()) };
    let said = SAID.lock().map(|said| said.clone()).unwrap_or_default();
    succeeded(result, &format!("{} cannot be relocated\n{said}", path.display()))?;
    checked.relocations = said.lines().filter_map(found_relocations).sum();
    for program in object.programs() {
        // SAFETY: the program belongs to `object`, and the string lives as long.
        let name = text(unsafe { sys::bpf_program__name(program.as_ptr()) });
        // SAFETY: as above.
        let section = text(unsafe { sys::bpf_program__section_name(program.as_ptr()) });
        // SAFETY: the program belongs to `object`.
        let code = unsafe { sys::bpf_program__insns(program.as_ptr()) };
        // SAFETY: as above.
        let count = unsafe { sys::bpf_program__insn_cnt(program.as_ptr()) };
        let count = usize::try_from(count)?;
        // SAFETY: so many instructions lie there until the object is closed.
        let code = unsafe { slice::from_raw_parts(code, count) };
        let function = |number: i32| {
            let found: BtfType<'_> = running.type_by_id(u32::try_from(number).ok()?.into())?;
            Some(found.name()?.to_string_lossy().into_owned())
        };
        let has = |number| function(number).is_some_and(|name| kernel.has(BtfKind::Func, &name));
        let reached = reach::follow(code, has);
        for number in reached.functions {
            if !has(number) {
                let name = function(number).unwrap_or_else(|| number.to_string());
                checked.lacks.insert(format!("function {name}"));
            }
        }
        for helper in &reached.helpers {
            checked.lacks.extend(kernel.missing(all, "bpf_func_id", (*helper).into()));
        }
        for at in reached.poisoned {
            checked.lacks.insert(unresolved(&said, &name, at));
        }
        if reached.is_beyond_us {
            checked.lacks.insert(format!("what {name} calls, for all that this check knows"));
        }
        checked.lacks.extend(missing_attach_point(kernel, &section));
        checked.programs += 1;
    }
    Ok(checked)
}

/// What a program is attached to, if its section names it and the kernel does not have it.
fn missing_attach_point(kernel: &Kernel<'_>, section: &str) -> Option<String> {
    let (kind, target) = section.trim_start_matches('?').split_once('/')?;
    let (of_kind, name) = match kind.trim_end_matches(".s") {
        // Each tracepoint has such a type.
        "tp_btf" | "raw_tp" | "raw_tracepoint" | "raw_tp.w" | "raw_tracepoint.w" => {
            (BtfKind::Typedef, format!("btf_trace_{target}"))
        }
        "tp" | "tracepoint" if !target.starts_with("syscalls/") => {
            (BtfKind::Typedef, format!("btf_trace_{}", target.rsplit('/').next()?))
        }
        "fentry" | "fexit" | "fmod_ret" => (BtfKind::Func, target.to_owned()),
        "lsm" => (BtfKind::Func, format!("bpf_lsm_{target}")),
        "iter" => (BtfKind::Func, format!("bpf_iter_{target}")),
        _ => return None,
    };
    (!kernel.has(of_kind, &name)).then(|| section.to_owned())
}

/// The number in `sec 'NAME': found N CO-RE relocations`.
fn found_relocations(line: &str) -> Option<usize> {
    line.strip_suffix(" CO-RE relocations")?.rsplit(' ').next()?.parse().ok()
}

/// What the relocation of an instruction asked for, in the words of libbpf: `struct task_struct.thread.fsbase`.
fn unresolved(said: &str, program: &str, at: usize) -> String {
    let of_instruction = format!(": substituting insn #{at} w/ invalid insn");
    let start = format!("libbpf: prog '{program}': relo #");
    let number = said.lines().find_map(|line| line.strip_suffix(&of_instruction)?.strip_prefix(&start));
    let described = number.and_then(|number| {
        let line = said.lines().find_map(|line| line.strip_prefix(&format!("{start}{number}: <")))?;
        let (_, what) = line.split_once("] ")?;
        Some(what.split(" (").next().unwrap_or(what).to_owned())
    });
    // In a function of the program, which libbpf counts from its own first instruction.
    described.unwrap_or_else(|| format!("what instruction {at} of {program} asks for"))
}

/// Makes the map one that every kernel can create. Returns what type it has.
fn make_placeholder(map: NonNull<sys::bpf_map>) -> io::Result<u32> {
    let map = map.as_ptr();
    // SAFETY: the map belongs to an open object; so below.
    let kind = unsafe { sys::bpf_map__type(map) };
    // SAFETY: as above.
    let is_internal = unsafe { sys::bpf_map__is_internal(map) };
    if is_internal {
        // The constants and variables, which are an array already.
        return Ok(kind);
    }
    // SAFETY: as above.
    let kind_set = unsafe { sys::bpf_map__set_type(map, sys::BPF_MAP_TYPE_ARRAY) };
    // SAFETY: as above.
    let flags_set = unsafe { sys::bpf_map__set_map_flags(map, 0) };
    // SAFETY: as above.
    let extra_set = unsafe { sys::bpf_map__set_map_extra(map, 0) };
    // SAFETY: as above.
    let key_set = unsafe { sys::bpf_map__set_key_size(map, PLACEHOLDER_BYTES) };
    // SAFETY: as above.
    let value_set = unsafe { sys::bpf_map__set_value_size(map, PLACEHOLDER_BYTES) };
    // SAFETY: as above.
    let entries_set = unsafe { sys::bpf_map__set_max_entries(map, 1) };
    for result in [kind_set, flags_set, extra_set, key_set, value_set, entries_set] {
        succeeded(result, "a map cannot be changed")?;
    }
    Ok(kind)
}

fn succeeded(result: c_int, what: &str) -> io::Result<()> {
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::from_raw_os_error(-result);
    Err(io::Error::new(error.kind(), format!("{error}: {what}")))
}

/// A string of libbpf's.
fn text(of_libbpf: *const c_char) -> String {
    // SAFETY: names of programs and sections are never null and end with a zero byte.
    unsafe { CStr::from_ptr(of_libbpf) }.to_string_lossy().into_owned()
}

/// Closed when dropped.
struct OpenObject(NonNull<sys::bpf_object>);

impl OpenObject {
    fn open(path: &Path, types: &str) -> Result<Self, Box<dyn Error>> {
        let file = CString::new(path.as_os_str().as_encoded_bytes())?;
        let types = CString::new(types)?;
        let options = sys::bpf_object_open_opts {
            sz: size_of::<sys::bpf_object_open_opts>() as u64,
            btf_custom_path: types.as_ptr(),
            ..Default::default()
        };
        // SAFETY: both strings live until the call is over; libbpf copies them.
        let object = unsafe { sys::bpf_object__open_file(file.as_ptr(), &raw const options) };
        let object = NonNull::new(object);
        Ok(Self(object.ok_or_else(|| format!("{}: {}", path.display(), io::Error::last_os_error()))?))
    }

    fn programs(&self) -> Vec<NonNull<sys::bpf_program>> {
        let mut programs = Vec::new();
        let mut last = ptr::null_mut();
        // SAFETY: the object is open, and `last` is one of its programs or null.
        while let Some(next) = NonNull::new(unsafe { sys::bpf_object__next_program(self.0.as_ptr(), last) }) {
            programs.push(next);
            last = next.as_ptr();
        }
        programs
    }

    fn maps(&self) -> Vec<NonNull<sys::bpf_map>> {
        let mut maps = Vec::new();
        let mut last = ptr::null_mut();
        // SAFETY: the object is open, and `last` is one of its maps or null.
        while let Some(next) = NonNull::new(unsafe { sys::bpf_object__next_map(self.0.as_ptr(), last) }) {
            maps.push(next);
            last = next.as_ptr();
        }
        maps
    }
}

impl Drop for OpenObject {
    fn drop(&mut self) {
        // SAFETY: it is open, and nothing that belongs to it is used any more.
        unsafe { sys::bpf_object__close(self.0.as_ptr()) }
    }
}
