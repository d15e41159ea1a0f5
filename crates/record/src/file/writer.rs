//! Writes a recording, flush by flush.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior, ffi};
use slip_model::{Batch, RecordingInfo, Request, SampleBlock, ServedRequest, Totals, Wait};
use zstd::bulk::Compressor;

use super::error::FileError;
use super::load::{Header, journal_of};
use super::tables::{self, BlockRow, ServedRow, WaitsRow};
use super::{block, schema, served_block, wait_block};

/// Small blocks are packed into one after this many flushes: a minute and a half, if there is one every 0.8 s.
const PACK_FLUSHES: usize = 120;

/// ... or after this many samples, requests or waits. More than that in one flush is packed at once.
const PACK_SAMPLES: usize = 1 << 16;

/// ... or after this many requests of a budget, which take ten times as much memory: two megabytes.
const PACK_SERVED: usize = 1 << 13;

/// How many times the above may gather while packing fails (full disk). Then these blocks stay small: what gathers is
/// kept in memory too.
const PACK_PATIENCE: usize = 4;

/// zstd level of packed blocks. On the synthetic hour of `bench/report`, level 1 gives 16.2 MB for 0.024 % of a core
/// (flushes and all), 3 gives 16.1 MB for 0.034 %, 9 16.2 MB for 0.042 % and 15 15.6 MB for 0.126 %: what is left after
/// the planes is noise, which searching longer does not shrink.
const PACK_LEVEL: i32 = 3;

/// How long a flush waits for a reader. Readers copy the rows and let go: 26 ms for an hour's recording.
const BUSY_TIMEOUT: Duration = Duration::from_millis(250);

/// Writes one recording file. Not shared between threads, but may move to one of its own.
///
/// Dropped without [`Writer::finish`], the file is what it would be after a crash: readable, and marked incomplete.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    connection: Connection,
    next: NextNumbers,
    gathered: Gathered,
    saved: Totals,
    /// Held until the end, and declared after the connection so that it is closed after it: closing any descriptor of
    /// the file drops the POSIX locks of SQLite.
    lock: File,
}

/// Where the next batch has to go on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct NextNumbers {
    string: u32,
    frame: u32,
    stack: u32,
    block: i64,
    waits: i64,
    served: i64,
}

/// What is stored in small blocks and not packed yet.
#[derive(Debug, Default)]
struct Gathered {
    samples: SampleBlock,
    requests: Vec<Request>,
    waits: Vec<Wait>,
    served: Vec<ServedRequest>,
    /// The rows that they are in go on to the newest ones.
    first_block: i64,
    first_waits: i64,
    first_served: i64,
    flushes: usize,
    failures: usize,
}

impl Writer {
    /// What [`Writer::create`] would refuse, as far as that is known beforehand, for who has other things to do first. Changes nothing.
    ///
    /// # Errors
    ///
    /// As for [`Writer::create`].
    pub fn check(path: &Path, overwrite: bool) -> Result<(), FileError> {
        let path = std::path::absolute(path).map_err(|source| FileError::from_io(path, "create", source))?;
        if overwrite {
            check_recording(&path)?;
        } else if path.symlink_metadata().is_ok() {
            return Err(FileError::Exists { path });
        }
        match path.parent() {
            Some(folder) if !folder.exists() => Err(FileError::NoFolder { path: folder.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Creates the file `path`, readable by its owner only, with an empty recording.
    ///
    /// With `overwrite`, a recording of that name is replaced; any other file is not.
    ///
    /// # Errors
    ///
    /// [`FileError::Exists`] without `overwrite`; [`FileError::NotASlipFile`] if what exists is no recording;
    /// [`FileError::Busy`] if another process is writing it; [`FileError::NoFolder`] if the folder is missing;
    /// [`FileError::Denied`], [`FileError::DiskFull`], [`FileError::Io`]. No new file is left behind.
    pub fn create(path: &Path, info: &RecordingInfo, overwrite: bool) -> Result<Self, FileError> {
        // SQLite gives a meaning of its own to names such as `:memory:`.
        let path = std::path::absolute(path).map_err(|source| FileError::from_io(path, "create", source))?;
        if overwrite {
            remove_recording(&path)?;
        }
        let created = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let lock = created.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => match path.parent() {
                Some(folder) if !folder.exists() => FileError::NoFolder { path: folder.to_owned() },
                // Folders such as /proc say this of every new file.
                _ => FileError::Io { path: path.clone(), action: "create", source: source.into() },
            },
            _ => FileError::from_io(&path, "create", source),
        })?;
        // Some file systems have no such locks; a reader then takes the recording for one whose writer died.
        let _ = lock.try_lock();
        match open(&path, info) {
            Ok(connection) => Ok(Self {
                path,
                connection,
                next: NextNumbers { string: 1, frame: 0, stack: 1, block: 1, waits: 1, served: 1 },
                gathered: Gathered::default(),
                saved: Totals::default(),
                lock,
            }),
            Err(error) => {
                let _ = fs::remove_file(journal_of(&path));
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// Says when the recording begins, nanoseconds since 1970: what was said of it when the file was created was before all that had to be
    /// found out first.
    ///
    /// # Errors
    ///
    /// As [`Writer::append`].
    pub fn begin(&mut self, started_unix_ns: u64) -> Result<(), FileError> {
        let written =
            write(&mut self.connection, |transaction| tables::update_started(transaction, started_unix_ns));
        written.map_err(|source| self.error(source))
    }

    /// Stores a batch: all of it or, if it fails, nothing.
    ///
    /// A batch that failed can be appended again, and has to be before the next one, whose strings, frames and stacks
    /// go on where it ends. Waits up to 0.25 s for readers.
    ///
    /// # Errors
    ///
    /// [`FileError::DiskFull`], which says what is saved; [`FileError::Busy`] if a reader does not let go;
    /// [`FileError::OutOfOrder`] if a batch was left out; [`FileError::Io`].
    pub fn append(&mut self, batch: &Batch) -> Result<(), FileError> {
        self.check_order(batch)?;
        let large = batch.samples.len().max(batch.requests.len()).max(batch.waits.len()) >= PACK_SAMPLES
            || batch.served.len() >= PACK_SERVED;
        let mut compressor = if large { self.compressor() } else { None };
        let mut next = self.next;
        let written = write(&mut self.connection, |transaction| {
            tables::insert_interned(transaction, &batch.interned)?;
            tables::upsert_processes(transaction, &batch.processes)?;
            tables::upsert_threads(transaction, &batch.threads)?;
            tables::upsert_allocations(transaction, &batch.allocations)?;
            for (samples, requests) in cut(&batch.samples, &batch.requests) {
                insert_block(transaction, next.block, &samples, requests, compressor.as_mut())?;
                next.block += 1;
            }
            for waits in batch.waits.chunks(PART) {
                insert_waits(transaction, next.waits, waits, compressor.as_mut())?;
                next.waits += 1;
            }
            for served in batch.served.chunks(PART) {
                insert_served(transaction, next.served, served, compressor.as_mut())?;
                next.served += 1;
            }
            if let Some(budget) = &batch.budget {
                tables::replace_budget(transaction, budget)?;
            }
            if let Some(facts) = &batch.facts {
                tables::replace_facts(transaction, facts)?;
            }
            tables::replace_totals(transaction, &Totals { complete: false, ..batch.totals })
        });
        written.map_err(|source| self.error(source))?;

        self.saved = Totals { complete: false, ..batch.totals };
        if large {
            self.pack();
            self.gathered = Gathered::default();
        } else if next != self.next {
            self.gathered.add(self.next, batch);
        }
        next.string += count(batch.interned.strings.len());
        next.frame += count(batch.interned.frames.len());
        next.stack += count(batch.interned.stacks.len());
        self.next = next;
        if self.gathered.is_due() {
            self.pack();
        }
        Ok(())
    }

    /// Marks the recording as complete and waits until the disk has it.
    ///
    /// # Errors
    ///
    /// As [`Writer::append`]. All batches are stored whatever this says; it can be called again.
    pub fn finish(&mut self, totals: Totals) -> Result<(), FileError> {
        self.pack();
        let totals = Totals { complete: true, ..totals };
        let written = write(&mut self.connection, |transaction| tables::replace_totals(transaction, &totals));
        written.map_err(|source| self.error(source))?;
        self.saved = totals;
        self.give_back_free_pages();
        self.lock.sync_all().map_err(|source| FileError::from_io(&self.path, "write to", source))
    }

    /// Takes the file away again: there is nothing in it to keep.
    pub fn discard(self) {
        drop(self.connection);
        // What is still there then is an empty recording, which does no harm.
        let _ = fs::remove_file(&self.path);
    }

    fn check_order(&self, batch: &Batch) -> Result<(), FileError> {
        let given = &batch.interned;
        let checks = [
            ("strings", given.strings.is_empty(), given.first_string, self.next.string),
            ("frames", given.frames.is_empty(), given.first_frame, self.next.frame),
            ("stacks", given.stacks.is_empty(), given.first_stack, self.next.stack),
        ];
        for (what, none, first, next) in checks {
            if !none && first != next {
                let what = format!("{what} begin with number {first}, not {next}");
                return Err(FileError::OutOfOrder { path: self.path.clone(), what });
            }
        }
        Ok(())
    }

    /// Replaces the small blocks by one. If that fails they stay, and it is tried again later: nothing is lost, the
    /// file only stays larger.
    fn pack(&mut self) {
        let Gathered { samples, requests, waits, served, flushes, .. } = &self.gathered;
        let Gathered { first_block, first_waits, first_served, .. } = &self.gathered;
        if *flushes == 0 || *flushes < 2 && samples.len().max(waits.len()).max(served.len()) < 256 {
            return;
        }
        let mut compressor = self.compressor();
        let packed = write(&mut self.connection, |transaction| {
            if !samples.is_empty() || !requests.is_empty() {
                tables::delete_blocks(transaction, *first_block, self.next.block - 1)?;
                insert_block(transaction, *first_block, samples, requests, compressor.as_mut())?;
            }
            if !waits.is_empty() {
                tables::delete_waits(transaction, *first_waits, self.next.waits - 1)?;
                insert_waits(transaction, *first_waits, waits, compressor.as_mut())?;
            }
            if !served.is_empty() {
                tables::delete_served(transaction, *first_served, self.next.served - 1)?;
                insert_served(transaction, *first_served, served, compressor.as_mut())?;
            }
            Ok(())
        });
        if packed.is_ok() || self.gathered.failures + 1 >= PACK_PATIENCE {
            self.gathered = Gathered::default();
        } else {
            self.gathered.failures += 1;
        }
    }

    /// Rewrites the file without the pages that small blocks have left behind: half a megabyte, which is most of a
    /// short recording. If it fails (disk full) they stay.
    fn give_back_free_pages(&self) {
        let pages = |pragma| self.connection.pragma_query_value(None, pragma, |row| row.get::<_, u64>(0));
        if let (Ok(free), Ok(all)) = (pages("freelist_count"), pages("page_count"))
            && free > all / 16
        {
            let _ = self.connection.execute_batch("PRAGMA temp_store = MEMORY; VACUUM");
        }
    }

    /// Made anew each time: its tables take a megabyte, which would sit unused for a minute.
    fn compressor(&self) -> Option<Compressor<'static>> {
        Compressor::new(PACK_LEVEL).ok()
    }

    fn error(&self, source: rusqlite::Error) -> FileError {
        match FileError::from_sqlite(&self.path, "write to", source, system_errno(&self.connection)) {
            FileError::DiskFull { path, .. } => FileError::DiskFull {
                path,
                saved_samples: self.saved.samples,
                saved_ns: self.saved.duration_ns,
            },
            error => error,
        }
    }
}

impl Gathered {
    /// Adds a batch whose rows begin with the numbers in `at`.
    fn add(&mut self, at: NextNumbers, batch: &Batch) {
        if self.flushes == 0 {
            (self.first_block, self.first_waits, self.first_served) = (at.block, at.waits, at.served);
        }
        self.flushes += 1;
        let (to, from) = (&mut self.samples, &batch.samples);
        to.time_ns.extend_from_slice(&from.time_ns);
        to.thread.extend_from_slice(&from.thread);
        to.stack.extend_from_slice(&from.stack);
        to.state.extend_from_slice(&from.state);
        to.request.extend_from_slice(&from.request);
        self.requests.extend_from_slice(&batch.requests);
        self.waits.extend_from_slice(&batch.waits);
        self.served.extend_from_slice(&batch.served);
    }

    fn is_due(&self) -> bool {
        let times = self.failures + 1;
        self.flushes >= times * PACK_FLUSHES
            || self.samples.len().max(self.requests.len()).max(self.waits.len()) >= times * PACK_SAMPLES
            || self.served.len() >= times * PACK_SERVED
    }
}

/// Opens the new, empty file and puts the tables in.
fn open(path: &Path, info: &RecordingInfo) -> Result<Connection, FileError> {
    let error = |source, errno| FileError::from_sqlite(path, "create", source, errno);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(|source| error(source, 0))?;
    let set_up = |connection: &mut Connection| {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // A rollback journal that exists during a transaction only, so that a killed recorder leaves one file. WAL
        // would leave three, and TRUNCATE and PERSIST a journal; WAL and TRUNCATE would save a third of the CPU of a flush
        // (0.13 and 0.14 ms against 0.2 ms in `bench/report`), which is not worth it.
        connection.pragma_update(None, "journal_mode", "DELETE")?;
        // No fsync until `finish`. The kernel has what a killed process wrote, so only a power cut can hurt, and then
        // `load` reads what it can. NORMAL has three fsyncs in every flush (1.5 times the CPU, three times the wall time),
        // and each makes the file system's own journal commit, for the database on that disk too: we must not disturb
        // what we watch.
        connection.pragma_update(None, "synchronous", "OFF")?;
        write(connection, |transaction| {
            schema::create(transaction)?;
            tables::insert_info(transaction, info)?;
            tables::replace_totals(transaction, &Totals::default())
        })
    };
    set_up(&mut connection).map_err(|source| error(source, system_errno(&connection)))?;
    Ok(connection)
}

/// Runs `work` in a transaction, which is rolled back if it fails.
fn write(
    connection: &mut Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    work(&transaction)?;
    transaction.commit()
}

fn insert_block(
    connection: &Connection,
    id: i64,
    samples: &SampleBlock,
    requests: &[Request],
    compressor: Option<&mut Compressor<'static>>,
) -> rusqlite::Result<()> {
    let data = block::encode(samples, requests, compressor);
    let row = BlockRow {
        id,
        first_ns: samples.time_ns.first().copied().unwrap_or(0),
        last_ns: samples.time_ns.last().copied().unwrap_or(0),
        samples: samples.len(),
        requests: requests.len(),
        data: &data,
    };
    tables::insert_block(connection, &row)
}

fn insert_waits(
    connection: &Connection,
    id: i64,
    waits: &[Wait],
    compressor: Option<&mut Compressor<'static>>,
) -> rusqlite::Result<()> {
    let data = wait_block::encode(waits, compressor);
    let time_ns = |wait: Option<&Wait>| wait.map_or(0, |wait| wait.time_ns);
    let (first_ns, last_ns) = (time_ns(waits.first()), time_ns(waits.last()));
    tables::insert_waits(connection, &WaitsRow { id, first_ns, last_ns, waits: waits.len(), data: &data })
}

fn insert_served(
    connection: &Connection,
    id: i64,
    served: &[ServedRequest],
    compressor: Option<&mut Compressor<'static>>,
) -> rusqlite::Result<()> {
    let data = served_block::encode(served, compressor);
    let end_ns = |request: Option<&ServedRequest>| request.map_or(0, |request| request.end_ns);
    let (first_ns, last_ns) = (end_ns(served.first()), end_ns(served.last()));
    let row = ServedRow { id, first_ns, last_ns, requests: served.len(), data: &data };
    tables::insert_served(connection, &row)
}

/// Most samples, requests or waits of a batch that go into one block.
const PART: usize = PACK_SAMPLES * 2;

/// Cuts a batch into parts that fit into a block.
fn cut<'a>(
    samples: &'a SampleBlock,
    requests: &'a [Request],
) -> impl Iterator<Item = (std::borrow::Cow<'a, SampleBlock>, &'a [Request])> {
    use std::borrow::Cow;
    let parts = samples.len().max(requests.len()).div_ceil(PART);
    (0..parts).map(move |part| {
        let range = |length: usize| (part * PART).min(length)..((part + 1) * PART).min(length);
        let of_requests = &requests[range(requests.len())];
        if parts == 1 {
            return (Cow::Borrowed(samples), of_requests);
        }
        let of_samples = range(samples.len());
        let cut = SampleBlock {
            time_ns: samples.time_ns[of_samples.clone()].to_vec(),
            thread: samples.thread[of_samples.clone()].to_vec(),
            stack: samples.stack[of_samples.clone()].to_vec(),
            state: samples.state[of_samples.clone()].to_vec(),
            request: samples.request[of_samples].to_vec(),
        };
        (Cow::Owned(cut), of_requests)
    })
}

/// Removes the recording `path`, if there is one, and nothing else.
fn remove_recording(path: &Path) -> Result<(), FileError> {
    if !check_recording(path)? {
        return Ok(());
    }
    // The journal first: next to a new file, one of the old file would be taken for its own.
    let error = |source| FileError::from_io(path, "write to", source);
    match fs::remove_file(journal_of(path)) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(error(source)),
        _ => {}
    }
    fs::remove_file(path).map_err(error)
}

/// Whether there is a file: then it is a recording, or empty, and nobody is writing it.
fn check_recording(path: &Path) -> Result<bool, FileError> {
    let error = |source| FileError::from_io(path, "write to", source);
    let found = match fs::metadata(path) {
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(false),
        found => found.map_err(error)?,
    };
    if !found.is_file() {
        return Err(FileError::NotASlipFile { path: path.to_owned(), found: "it is not a regular file" });
    }
    if found.len() > 0 {
        let mut file = File::open(path).map_err(error)?;
        let mut head = Vec::new();
        (&mut file).take(Header::LENGTH as u64).read_to_end(&mut head).map_err(error)?;
        // A recording of a later version is one too.
        Header::parse(path, &head)?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(FileError::Busy { path: path.to_owned() });
        }
    }
    Ok(true)
}

/// The system error behind the last error of SQLite.
fn system_errno(connection: &Connection) -> i32 {
    // SAFETY: the handle is used in the next line only, while `connection` keeps it open.
    let handle = unsafe { connection.handle() };
    // SAFETY: `handle` is an open connection, and this thread is the only one that uses it.
    unsafe { ffi::sqlite3_system_errno(handle) }
}

/// Lengths of a batch: it numbers its entries with 32 bits.
fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
