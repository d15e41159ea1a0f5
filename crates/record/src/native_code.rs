//! Where processes have their native code, and what its functions are called.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use slip_model::NativeFrame;
use slip_native::{Code, Elf, Found, Mapped, Registers, Stack, Unwound, checksum, unwind};
use slip_remote::{FileId, Mapping, open_debug_file, open_linked_files, open_mapped, parse_maps};

/// Mappings of a process with code that are known.
const MAX_MODULES: usize = 4_096;

/// Names of addresses that are kept of a process.
const MAX_NAMES: usize = 1 << 16;

/// What is kept of files, all together. A browser's have 100 MiB.
const MAX_FILES_BYTES: u64 = 512 << 20;

/// Largest debug file that is read to the end for its sum. A browser's has more, and is found by the number of its build.
const MAX_DEBUG_FILE_BYTES: u64 = 512 << 20;

/// The instruction that calls what is so far away from its end.
const CALL: u8 = 0xe8;
const CALL_BYTES: u64 = 5;

/// Where a process has its code.
#[derive(Debug, Default)]
pub(crate) struct NativeProcess {
    /// By address.
    modules: Vec<Module>,
    /// The program that it ran when they were read.
    program: PathBuf,
    names: HashMap<u64, NativeFrame>,
}

#[derive(Debug)]
struct Module {
    mapping: Mapping,
    /// The file, and what is to be added to its addresses; read when it is needed.
    file: OnceCell<Option<(Arc<Elf>, u64)>>,
}

impl NativeProcess {
    /// Looks where the code is if it runs another program than before.
    pub(crate) fn follow(&mut self, pid: u32) {
        // One that has ended has none, and what was there is kept.
        if let Ok(program) = fs::read_link(format!("/proc/{pid}/exe"))
            && (program != self.program || self.modules.is_empty())
        {
            self.read_modules(pid);
            self.program = program;
        }
    }

    /// Looks where the code is now; false if it is where it was.
    pub(crate) fn read_modules(&mut self, pid: u32) -> bool {
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let maps = parse_maps(&String::from_utf8_lossy(&maps));
        let code: Vec<Mapping> =
            maps.into_iter().filter(|mapping| mapping.executable).take(MAX_MODULES).collect();
        if code.is_empty() || code.iter().eq(self.modules.iter().map(|module| &module.mapping)) {
            return false;
        }
        let known = std::mem::take(&mut self.modules);
        let mut known: HashMap<u64, Module> =
            known.into_iter().map(|module| (module.mapping.start, module)).collect();
        self.modules = code
            .into_iter()
            .map(|mapping| {
                let same = known.remove(&mapping.start).filter(|known| known.mapping == mapping);
                same.unwrap_or_else(|| Module { mapping, file: OnceCell::new() })
            })
            .collect();
        self.names.clear();
        true
    }

    /// Unwinds a copy of a stack.
    pub(crate) fn walk(&self, pid: u32, registers: &Registers, stack: &[u8], files: &Files) -> Unwound {
        let bytes = Stack { begin: registers.sp, bytes: stack };
        unwind(&Loaded { pid, modules: &self.modules, files }, registers, &bytes)
    }

    /// The function that an address is in; without a name if it is not known.
    pub(crate) fn name(&mut self, pid: u32, addr: u64, files: &Files) -> NativeFrame {
        if let Some(name) = self.names.get(&addr) {
            return name.clone();
        }
        let loaded = Loaded { pid, modules: &self.modules, files };
        let path = loaded.module(addr).map_or("", |module| &module.mapping.path);
        let function = match loaded.at(addr) {
            Some(Mapped::File { elf, bias }) => elf.function_at(addr.wrapping_sub(bias)),
            _ => None,
        };
        let module = path.rsplit('/').next().unwrap_or_default().to_owned();
        let name = NativeFrame { function: function.unwrap_or_default(), module };
        if self.names.len() >= MAX_NAMES {
            self.names.clear();
        }
        self.names.insert(addr, name.clone());
        name
    }

    /// Where the function begins that an address is in, as its file has it; `None` if its tables do not say.
    pub(crate) fn begin_of(&self, pid: u32, addr: u64, files: &Files) -> Option<u64> {
        match (Loaded { pid, modules: &self.modules, files }).at(addr)? {
            Mapped::File { elf, bias } => elf.begin_of(addr.wrapping_sub(bias)),
            Mapped::Bare => None,
        }
    }
}

impl NativeProcess {
    /// Whether a part of a function is there that the compiler has put apart from the rest.
    pub(crate) fn is_part(&self, pid: u32, addr: u64, files: &Files) -> bool {
        match (Loaded { pid, modules: &self.modules, files }).at(addr) {
            Some(Mapped::File { elf, bias }) => elf.is_part(addr.wrapping_sub(bias)),
            _ => false,
        }
    }

    /// What is called by the instruction that this address is in the last byte of, as its file has it; `None` if it is no call of a certain place.
    pub(crate) fn called_at(&self, pid: u32, addr: u64, files: &Files) -> Option<u64> {
        let module = Loaded { pid, modules: &self.modules, files }.module(addr)?;
        let begin = addr.checked_sub(CALL_BYTES - 1).filter(|begin| *begin >= module.mapping.start)?;
        let (file, _) = open_mapped(pid, &module.mapping)?;
        let mut bytes = [0; CALL_BYTES as usize];
        let at = module.mapping.file_offset.checked_add(begin - module.mapping.start)?;
        file.read_exact_at(&mut bytes, at).ok()?;
        let (opcode, distance) = bytes.split_first()?;
        let distance = i32::from_le_bytes(*distance.first_chunk()?);
        (*opcode == CALL).then(|| addr.wrapping_add(1).wrapping_add_signed(distance.into()))
    }
}

/// The code of a process, with the files that it is in.
struct Loaded<'a> {
    pid: u32,
    modules: &'a [Module],
    files: &'a Files,
}

impl<'a> Loaded<'a> {
    fn module(&self, addr: u64) -> Option<&'a Module> {
        let behind = self.modules.partition_point(|module| module.mapping.start <= addr);
        let module = self.modules.get(behind.checked_sub(1)?)?;
        (addr < module.mapping.end).then_some(module)
    }
}

impl Code for Loaded<'_> {
    fn at(&self, addr: u64) -> Option<Mapped<'_>> {
        let module = self.module(addr)?;
        let file = module.file.get_or_init(|| {
            let elf = self.files.of(self.pid, &module.mapping)?;
            let bias = elf.bias(module.mapping.start, module.mapping.file_offset)?;
            Some((elf, bias))
        });
        Some(match file {
            Some((elf, bias)) => Mapped::File { elf, bias: *bias },
            None => Mapped::Bare,
        })
    }
}

/// Files that have been read: processes share them.
#[derive(Debug, Default)]
pub(crate) struct Files {
    known: RefCell<HashMap<FileId, Option<Arc<Elf>>>>,
    /// The kernel's own, which is of no file and the same for all.
    kernels: OnceCell<Option<Arc<Elf>>>,
    bytes: Cell<u64>,
}

impl Files {
    fn of(&self, pid: u32, mapping: &Mapping) -> Option<Arc<Elf>> {
        if mapping.path == "[vdso]" {
            return self.kernels.get_or_init(own_vdso).clone();
        }
        let (file, id) = open_mapped(pid, mapping)?;
        if let Some(known) = self.known.borrow().get(&id) {
            return known.clone();
        }
        if self.bytes.get() > MAX_FILES_BYTES {
            return None;
        }
        let read = |at: u64, buf: &mut [u8]| file.read_exact_at(buf, at).is_ok();
        let mut elf = Elf::parse(&read);
        if let Some(elf) = &mut elf {
            add_debug_file(pid, &mapping.path, elf);
        }
        let elf = elf.map(Arc::new);
        self.bytes.set(self.bytes.get().saturating_add(elf.as_ref().map_or(0, |elf| elf.len_bytes())));
        self.known.borrow_mut().insert(id, elf.clone());
        elf
    }
}

/// Looks for the file that has what was stripped from one, by the number of its build and then by its name.
fn add_debug_file(pid: u32, path: &str, elf: &mut Elf) {
    let Some(wanted) = elf.debug_file() else { return };
    let by_build_id = open_debug_file(pid, wanted.build_id);
    let link = wanted.link.cloned();
    let by_name = link.iter().flat_map(|link| {
        let is_it = |file: &File| checksum(file, MAX_DEBUG_FILE_BYTES) == Some(link.checksum);
        open_linked_files(pid, path, &link.name).filter(is_it)
    });
    for (file, is_checked) in
        by_build_id.map(|file| (file, false)).into_iter().chain(by_name.map(|file| (file, true)))
    {
        if elf.add_debug_file(&|at, buf| file.read_exact_at(buf, at).is_ok(), is_checked) != Found::default()
        {
            break;
        }
    }
}

/// The code that the kernel gives to each process, from our own memory.
fn own_vdso() -> Option<Arc<Elf>> {
    let maps = parse_maps(&fs::read_to_string("/proc/self/maps").ok()?);
    let mapping = maps.into_iter().find(|mapping| mapping.path == "[vdso]")?;
    let memory = File::open("/proc/self/mem").ok()?;
    let read = |at: u64, buf: &mut [u8]| {
        let addr = mapping.start.checked_add(at).filter(|addr| *addr < mapping.end);
        addr.is_some_and(|addr| memory.read_exact_at(buf, addr).is_ok())
    };
    Elf::parse(&read).map(Arc::new)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_code_of_the_kernel_is_read_from_our_own_memory() {
        let elf = own_vdso().unwrap();
        assert!(elf.bias(0x7000, 0).is_some());
    }

    /// The name of the function `hidden` in a file that is stripped, with what a shell makes of it beside it.
    fn hidden_in(script: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let source = slip_testkit::fixtures().join("programs/cpp/inlined.cpp");
        let script = format!(
            "set -e; g++ -g -O2 -Wl,--build-id=none -o whole {}; objcopy --only-keep-debug whole the.debug
            cp whole other.debug; objcopy --strip-all --add-gnu-debuglink=the.debug whole stripped; {script}",
            source.display()
        );
        let ran = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let listed = Command::new("nm").arg(folder.path().join("whole")).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let row = listed.lines().find(|line| line.contains("hidden")).unwrap();
        let vaddr = u64::from_str_radix(row.split(' ').next().unwrap(), 16).unwrap();
        let path = folder.path().join("stripped");
        let mapping = Mapping {
            path: path.to_str().unwrap().to_owned(),
            inode: fs::metadata(&path).unwrap().ino(),
            ..parse_maps("400000-500000 r-xp 00000000 00:00 1 /none").remove(0)
        };
        Files::default().of(std::process::id(), &mapping).unwrap().function_at(vaddr)
    }

    #[test]
    fn a_debug_file_that_is_named_is_found_where_it_may_be_and_only_if_it_is_the_one() {
        if !Command::new("g++").arg("--version").output().is_ok_and(|ran| ran.status.success()) {
            return slip_testkit::skip("a program of our own", "there is no g++");
        }
        let found = Some("hidden".to_owned());
        assert_eq!(hidden_in(""), found);
        assert_eq!(hidden_in("mkdir .debug; mv the.debug .debug"), found);
        assert_eq!(hidden_in("rm the.debug"), None);
        // It says what functions are called, and is another one.
        assert_eq!(hidden_in("mv other.debug the.debug"), None);
        assert_eq!(hidden_in("mkdir .debug; mv the.debug .debug; mv other.debug the.debug"), found);
    }

    #[test]
    fn what_has_not_moved_is_known() {
        let mut process = NativeProcess::default();
        assert!(process.read_modules(std::process::id()));
        assert!(!process.read_modules(std::process::id()));
    }
}
