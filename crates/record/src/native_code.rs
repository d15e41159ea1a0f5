//! Where processes have their native code, and what its functions are called.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use slip_model::NativeFrame;
use slip_native::{
    Code, DebugInfo, Elf, Found, Mapped, PerfMap, Registers, SourceFrame, Stack, Unwound, build_id, checksum,
    common_link, unwind,
};
use slip_remote::{
    FileId, Mapping, open_common_files, open_debug_file, open_linked_files, open_mapped, open_perf_map,
    parse_maps,
};

use crate::debuginfod::Debuginfod;

/// Mappings of a process with code that are known.
const MAX_MODULES: usize = 4_096;

/// Names of addresses that are kept of a process.
const MAX_NAMES: usize = 1 << 16;

/// What is kept of files, all together. A browser's have 100 MiB.
const MAX_FILES_BYTES: u64 = 512 << 20;

/// Files that are kept open because they say which lines functions are of: a process may have 1,024 open as a rule, and we need others.
const MAX_LINES: usize = 256;

/// Largest debug file that is read to the end for its sum. A browser's has more, and is found by the number of its build.
const MAX_DEBUG_FILE_BYTES: u64 = 512 << 20;

/// Most that is read of what a process tells of code that it has compiled. A server in JavaScript tells 5 MiB.
const MAX_PERF_MAP_BYTES: u64 = 64 << 20;

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
    /// What it has compiled while it ran, once such code was seen.
    compiled: Option<Compiled>,
    /// How many debug files had come when its files were named.
    generation: u64,
}

/// What a process tells of code that it has compiled.
#[derive(Debug, Default)]
struct Compiled {
    names: PerfMap,
    /// How long the file was.
    bytes: u64,
}

/// A file with code.
#[derive(Debug)]
struct Known {
    elf: Elf,
    /// It or its debug file, whichever says which lines its functions are of.
    lines: Option<Lines>,
    info: Mutex<Option<Option<DebugInfo>>>,
}

#[derive(Debug)]
struct Module {
    mapping: Mapping,
    /// The file, and what is to be added to its addresses; read when it is needed.
    file: OnceCell<Option<(Arc<Known>, u64)>>,
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
    /// Forgets what functions are called if debug files have come since; whether it has.
    pub(crate) fn forget_names(&mut self, files: &Files) -> bool {
        if std::mem::replace(&mut self.generation, files.generation.get()) == files.generation.get() {
            return false;
        }
        for module in &mut self.modules {
            module.file = OnceCell::new();
        }
        self.names.clear();
        true
    }

    /// The functions at an address, with those that were inlined there, and their lines; the outermost first, and none if that is not told.
    pub(crate) fn source(&self, pid: u32, addr: u64, files: &Files) -> Vec<SourceFrame> {
        let loaded = Loaded { pid, modules: &self.modules, files };
        // So that the file is there.
        let _ = loaded.at(addr);
        let known = loaded.module(addr).and_then(|module| module.file.get()?.as_ref());
        known.map(|(known, bias)| known.source(addr.wrapping_sub(*bias), files)).unwrap_or_default()
    }

    /// Whether the code there is of no file.
    pub(crate) fn is_compiled(&self, pid: u32, addr: u64, files: &Files) -> bool {
        matches!((Loaded { pid, modules: &self.modules, files }).at(addr), Some(Mapped::Bare))
    }

    /// What the process, which knows itself by `own_pid`, calls the code there that it has compiled.
    pub(crate) fn compiled_name(&mut self, pid: u32, own_pid: u32, addr: u64) -> Option<String> {
        if self.compiled.is_none() {
            self.read_compiled(pid, own_pid);
        }
        self.compiled.as_ref()?.names.function_at(addr)
    }

    /// Reads what the process has compiled if it has compiled more, and code of that kind was seen; whether it has.
    pub(crate) fn look_at_compiled(&mut self, pid: u32, own_pid: u32) -> bool {
        self.compiled.is_some() && self.read_compiled(pid, own_pid)
    }

    fn read_compiled(&mut self, pid: u32, own_pid: u32) -> bool {
        let compiled = self.compiled.get_or_insert_default();
        let Some((file, bytes)) = open_perf_map(pid, own_pid) else { return false };
        if bytes == compiled.bytes {
            return false;
        }
        let mut text = Vec::new();
        if file.take(MAX_PERF_MAP_BYTES).read_to_end(&mut text).is_err() {
            return false;
        }
        *compiled = Compiled { names: PerfMap::parse(text), bytes };
        true
    }

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
            let known = self.files.of(self.pid, &module.mapping)?;
            let bias = known.elf.bias(module.mapping.start, module.mapping.file_offset)?;
            Some((known, bias))
        });
        Some(match file {
            Some((known, bias)) => Mapped::File { elf: &known.elf, bias: *bias },
            None => Mapped::Bare,
        })
    }
}

/// Files that have been read: processes share them.
#[derive(Debug, Default)]
pub(crate) struct Files {
    known: RefCell<HashMap<FileId, Option<Arc<Known>>>>,
    /// The kernel's own, which is of no file and the same for all.
    kernels: OnceCell<Option<Arc<Known>>>,
    bytes: Cell<u64>,
    /// Files that say which lines functions are of.
    open: Cell<usize>,
    /// Who is asked for debug files that are not here, if anybody, and for which files.
    servers: RefCell<Option<Debuginfod>>,
    awaited: RefCell<HashMap<String, FileId>>,
    /// How many have come.
    generation: Cell<u64>,
}

impl Files {
    /// Also asks servers for debug files.
    pub(crate) fn ask(&self, servers: Debuginfod) {
        *self.servers.borrow_mut() = Some(servers);
    }

    /// Takes the names of functions from debug files that have come.
    pub(crate) fn take_debug_files(&self) {
        let mut servers = self.servers.borrow_mut();
        let Some(servers) = &mut *servers else { return };
        while let Some((build_id, path)) = servers.take() {
            let id = self.awaited.borrow_mut().remove(&build_id);
            let Some((id, file)) = id.zip(File::open(path).ok()) else { continue };
            let mut known = self.known.borrow_mut();
            let Some(Some(old)) = known.get(&id) else { continue };
            let mut elf = old.elf.clone();
            // That it is of this build is its own word, which is checked as for any other debug file.
            let found = elf.add_debug_file(&|at, buf| file.read_exact_at(buf, at).is_ok(), false);
            if found == Found::default() {
                continue;
            }
            let has_room = self.open.get() < MAX_LINES;
            let lines = (found.lines && has_room).then(|| Lines::new(std::process::id(), file));
            self.open.set(self.open.get() + usize::from(lines.is_some()));
            let before = old.elf.len_bytes();
            self.add_bytes(elf.len_bytes().saturating_sub(before));
            known.insert(id, Some(Arc::new(Known { elf, lines, info: Mutex::default() })));
            self.generation.set(self.generation.get() + 1);
        }
    }

    fn of(&self, pid: u32, mapping: &Mapping) -> Option<Arc<Known>> {
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
        let known = Elf::parse(&read).map(|mut elf| {
            let lines = add_debug_file(pid, &mapping.path, &mut elf);
            if lines.is_none()
                && let Some(servers) = &mut *self.servers.borrow_mut()
                && let Some(wanted) = elf.debug_file().filter(|wanted| !wanted.build_id.is_empty())
            {
                self.awaited.borrow_mut().insert(servers.ask(wanted.build_id), id);
            }
            let lines = if elf.has_lines() { Some(file) } else { lines };
            let lines = lines.filter(|_| self.open.get() < MAX_LINES).map(|file| Lines::new(pid, file));
            self.open.set(self.open.get() + usize::from(lines.is_some()));
            Arc::new(Known { elf, lines, info: Mutex::default() })
        });
        self.add_bytes(known.as_ref().map_or(0, |known| known.elf.len_bytes()));
        self.known.borrow_mut().insert(id, known.clone());
        known
    }

    fn add_bytes(&self, bytes: u64) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
    }
}

/// A file that says which lines functions are of.
#[derive(Debug)]
struct Lines {
    file: File,
    /// What it has in common with others, if that is in another file.
    common: Option<File>,
}

impl Lines {
    /// Of a file that process `pid` has.
    fn new(pid: u32, file: File) -> Self {
        let link = common_link(&|at, buf| file.read_exact_at(buf, at).is_ok());
        let common = link.and_then(|link| {
            let is_it =
                |file: &File| build_id(&|at, buf| file.read_exact_at(buf, at).is_ok()) == link.build_id;
            open_common_files(pid, &link.path, &link.build_id).find(is_it)
        });
        Self { file, common }
    }

    fn read(&self) -> Option<DebugInfo> {
        let own = |at: u64, buf: &mut [u8]| self.file.read_exact_at(buf, at).is_ok();
        let Some(common) = &self.common else { return DebugInfo::read(&own, None) };
        let common = |at: u64, buf: &mut [u8]| common.read_exact_at(buf, at).is_ok();
        DebugInfo::read(&own, Some(&common))
    }
}

impl Known {
    /// The functions at an address and their lines, as [`DebugInfo::frames_at`]. What says so is read for the first address of the file.
    fn source(&self, vaddr: u64, files: &Files) -> Vec<SourceFrame> {
        let Some(lines) = &self.lines else { return Vec::new() };
        let mut info = self.info.lock().unwrap_or_else(PoisonError::into_inner);
        let info = info.get_or_insert_with(|| {
            if files.bytes.get() > MAX_FILES_BYTES {
                return None;
            }
            let info = lines.read()?;
            files.add_bytes(info.len_bytes());
            Some(info)
        });
        info.as_ref().map(|info| info.frames_at(vaddr)).unwrap_or_default()
    }
}

/// Looks for the file that has what was stripped from one, by the number of its build and then by its name; if it says which lines functions are
/// of, that is the file.
fn add_debug_file(pid: u32, path: &str, elf: &mut Elf) -> Option<File> {
    let wanted = elf.debug_file()?;
    let by_build_id = open_debug_file(pid, wanted.build_id);
    let link = wanted.link.cloned();
    let by_name = link.iter().flat_map(|link| {
        let is_it = |file: &File| checksum(file, MAX_DEBUG_FILE_BYTES) == Some(link.checksum);
        open_linked_files(pid, path, &link.name).filter(is_it)
    });
    let found = by_build_id.map(|file| (file, false)).into_iter().chain(by_name.map(|file| (file, true)));
    for (file, is_checked) in found {
        let found = elf.add_debug_file(&|at, buf| file.read_exact_at(buf, at).is_ok(), is_checked);
        if found != Found::default() {
            return Some(file).filter(|_| found.lines);
        }
    }
    None
}

/// The code that the kernel gives to each process, from our own memory.
fn own_vdso() -> Option<Arc<Known>> {
    let maps = parse_maps(&fs::read_to_string("/proc/self/maps").ok()?);
    let mapping = maps.into_iter().find(|mapping| mapping.path == "[vdso]")?;
    let memory = File::open("/proc/self/mem").ok()?;
    let read = |at: u64, buf: &mut [u8]| {
        let addr = mapping.start.checked_add(at).filter(|addr| *addr < mapping.end);
        addr.is_some_and(|addr| memory.read_exact_at(buf, addr).is_ok())
    };
    Elf::parse(&read).map(|elf| Arc::new(Known { elf, lines: None, info: Mutex::default() }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_code_of_the_kernel_is_read_from_our_own_memory() {
        let known = own_vdso().unwrap();
        assert!(known.elf.bias(0x7000, 0).is_some());
    }

    fn address_of_hidden(path: &Path) -> u64 {
        let listed = Command::new("nm").arg(path).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let row = listed.lines().find(|line| line.contains("hidden")).unwrap();
        u64::from_str_radix(row.split(' ').next().unwrap(), 16).unwrap()
    }

    fn mapping_of(path: &Path) -> Mapping {
        Mapping {
            path: path.to_str().unwrap().to_owned(),
            inode: fs::metadata(path).unwrap().ino(),
            ..parse_maps("400000-500000 r-xp 00000000 00:00 1 /none").remove(0)
        }
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
        let vaddr = address_of_hidden(&folder.path().join("whole"));
        let mapping = mapping_of(&folder.path().join("stripped"));
        Files::default().of(std::process::id(), &mapping).unwrap().elf.function_at(vaddr)
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

    /// A server, killed at the end.
    struct Server(std::process::Child);

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_debug_file_that_is_not_here_is_asked_for_and_names_functions_when_it_has_come() {
        let folder = tempfile::tempdir().unwrap();
        let source = slip_testkit::fixtures().join("programs/cpp/inlined.cpp");
        // By its number the server gives the file of the first program, and for the second one's number that of the first.
        let script = format!(
            "set -e; g++ -g -O2 -o whole {}; strip -o stripped whole; g++ -g -O1 -o other {0}; strip other; objcopy --only-keep-debug whole debug
            for of in whole other; do id=$(readelf -n $of | sed -n 's/.*Build ID: //p'); mkdir -p served/buildid/$id; cp debug served/buildid/$id/debuginfo; done",
            source.display()
        );
        let ran = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output();
        if !ran.is_ok_and(|ran| ran.status.success()) {
            return slip_testkit::skip("a program of our own", "g++ does not compile it");
        }
        let mut server = Command::new("python3");
        server
            .args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0", "--directory"])
            .arg(folder.path().join("served"));
        let mut server = Server(server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let mut said = String::new();
        BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let port = said.split(" port ").nth(1).unwrap().split(' ').next().unwrap();
        let cache = [("DEBUGINFOD_CACHE_PATH", folder.path().join("cache"))];
        let Ok(servers) = Debuginfod::start_with(&format!("http://127.0.0.1:{port}"), &cache) else {
            return slip_testkit::skip("a debug file from a server", "there is no debuginfod-find");
        };
        let files = Files::default();
        files.ask(servers);
        let of = |name: &str| files.of(std::process::id(), &mapping_of(&folder.path().join(name))).unwrap();
        let hidden = address_of_hidden(&folder.path().join("whole"));
        assert_eq!(of("other").elf.function_at(hidden), None);
        assert_eq!(of("stripped").elf.function_at(hidden), None);
        let end = Instant::now() + Duration::from_secs(60);
        while files.generation.get() == 0 {
            assert!(Instant::now() < end, "it does not come");
            std::thread::sleep(Duration::from_millis(10));
            files.take_debug_files();
        }
        assert_eq!(of("stripped").elf.function_at(hidden).as_deref(), Some("hidden"));
        let source = of("stripped").source(hidden, &files);
        assert!(source[0].file.ends_with("inlined.cpp"), "{source:?}");
        // It was asked for first, and what came was another program's.
        assert_eq!((of("other").elf.function_at(hidden), files.generation.get()), (None, 1));
        let mut process = NativeProcess::default();
        assert!(process.forget_names(&files));
        assert!(!process.forget_names(&files));
    }

    #[test]
    fn what_has_not_moved_is_known() {
        let mut process = NativeProcess::default();
        assert!(process.read_modules(std::process::id()));
        assert!(!process.read_modules(std::process::id()));
    }
}
