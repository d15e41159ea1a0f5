//! What is written to a recording file is what is read from it.
#![allow(clippy::unwrap_used, reason = "test code")]

mod file_support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::mpsc;

use file_support::{
    FLUSH_SAMPLES, Source, budget, check_samples, child, child_path, facts, info, served, wait,
};
use proptest::prelude::*;
use slip_model::{
    Batch, Budget, Frame, FrameKind, Interner, PartTimes, Process, ProcessId, RecordingInfo, Request,
    RequestId, Sample, SampleBlock, ServedRequest, StackId, State, StringId, Thread, ThreadId, Totals, Wait,
    WaitReason,
};
use slip_record::file::{FileError, Writer, block, load, served_block, wait_block};

#[test]
fn an_hour_of_flushes_comes_back_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.slip");
    let mut source = Source::default();
    let mut writer = Writer::create(&path, &RecordingInfo { started_unix_ns: 7, ..info() }, false).unwrap();
    writer.begin(info().started_unix_ns).unwrap();
    let mut requests = Vec::new();
    for _ in 0..500 {
        let batch = source.batch(FLUSH_SAMPLES);
        requests.extend_from_slice(&batch.requests);
        writer.append(&batch).unwrap();
    }
    let totals = Totals { filtered: 3, own_cpu_ns: 7, ..source.totals() };
    writer.finish(totals).unwrap();
    let loaded = load(&path).unwrap();
    assert_eq!(loaded.warnings, [""; 0]);
    assert!(loaded.being_written, "the writer still holds its lock");
    let recording = loaded.recording;
    assert_eq!(check_samples(&recording), 500 * FLUSH_SAMPLES);
    assert_eq!(recording.requests, requests);
    assert_eq!(recording.info, info());
    assert_eq!(recording.totals, Totals { complete: true, ..totals });
    assert!(recording.blocks.len() < 10, "{} blocks: small ones are packed", recording.blocks.len());
    drop(writer);
    assert!(!load(&path).unwrap().being_written);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "one file, no journal");
}

#[test]
fn a_stack_that_was_forgotten_meanwhile_is_one_stack() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.slip");
    let mut interner = Interner::forgetful(1);
    let mut samples = SampleBlock::default();
    let mut stacks = |interner: &mut Interner| {
        for lines in [[1, 2], [1, 3], [4, 2], [1, 2], [1, 3]] {
            let frames = lines.map(|line| interner.frame(Frame { line, ..Frame::default() }));
            samples.push(Sample { stack: interner.stack(&frames), ..Sample::default() });
        }
    };
    stacks(&mut interner);
    let known = interner.take_delta();
    stacks(&mut interner);
    let mut writer = Writer::create(&path, &info(), false).unwrap();
    writer.append(&Batch { interned: known, threads: vec![Thread::default()], ..Batch::default() }).unwrap();
    writer.append(&Batch { interned: interner.take_delta(), samples, ..Batch::default() }).unwrap();
    writer.finish(Totals::default()).unwrap();
    let recording = load(&path).unwrap().recording;
    let seen: Vec<StackId> = recording.blocks[0].stack.iter().map(|stack| StackId(*stack)).collect();
    assert_eq!(seen[..5], seen[5..]);
    assert_eq!((seen[0], seen[1]), (seen[3], seen[4]));
    let lines = |stack| {
        let frames = recording.interner.frames_of(stack);
        frames.map(|frame| recording.interner.frame_at(frame).line).collect::<Vec<_>>()
    };
    assert_eq!([lines(seen[0]), lines(seen[1]), lines(seen[2])], [[1, 2], [1, 3], [4, 2]]);
}

#[test]
fn a_batch_larger_than_a_block_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.slip");
    let mut source = Source::default();
    let mut writer = Writer::create(&path, &info(), false).unwrap();
    for count in [400, 300_000, 0, 1, 70_000] {
        writer.append(&source.batch(count)).unwrap();
    }
    writer.finish(source.totals()).unwrap();
    assert_eq!(check_samples(&load(&path).unwrap().recording), source.samples);
}

#[test]
fn waits_come_back_in_order_with_samples_and_without() {
    let folder = tempfile::tempdir().unwrap();
    for (name, with_samples) in [("both.slip", true), ("waits.slip", false)] {
        let path = folder.path().join(name);
        let mut source = Source::default();
        let mut writer = Writer::create(&path, &info(), false).unwrap();
        let mut waits = Vec::new();
        // Small flushes that are packed, some without waits, and one that is larger than a block.
        for flush in 0..300_u64 {
            let mut batch = source.batch(if with_samples || flush == 0 { 8 } else { 0 });
            if !with_samples {
                (batch.samples, batch.totals) = Default::default();
                batch.requests.clear();
            }
            let count = if flush == 200 { 140_000 } else { flush % 3 * 40 };
            batch.waits = (0..count).map(|at| wait(waits.len() as u64 + at)).collect();
            waits.extend_from_slice(&batch.waits);
            writer.append(&batch).unwrap();
        }
        // What a reader sees before the last of them are packed is the same.
        assert!(load(&path).unwrap().recording.waits == waits);
        writer.finish(if with_samples { source.totals() } else { Totals::default() }).unwrap();
        let loaded = load(&path).unwrap();
        assert_eq!(loaded.warnings, [""; 0]);
        assert!(loaded.recording.waits == waits);
        assert_eq!(check_samples(&loaded.recording), if with_samples { 300 * 8 } else { 0 });
        drop(writer);
        let rows = |table| {
            let sql = format!("SELECT count(*) FROM {table}");
            rusqlite::Connection::open(&path)
                .unwrap()
                .query_row(&sql, (), |row| row.get::<_, u32>(0))
                .unwrap()
        };
        assert!(rows("waits") < 10, "small ones are packed: {}", rows("waits"));
        assert_eq!(rows("blocks") > 0, with_samples);
    }
}

#[test]
fn facts_come_back_as_they_were_last_and_files_without_them_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.slip");
    let mut source = Source::default();
    let mut writer = Writer::create(&path, &info(), false).unwrap();
    writer.append(&Batch { facts: Some(facts(1)), ..source.batch(8) }).unwrap();
    writer.append(&Batch { facts: Some(facts(2)), ..source.batch(8) }).unwrap();
    writer.append(&source.batch(8)).unwrap();
    writer.finish(source.totals()).unwrap();
    drop(writer);
    let loaded = load(&path).unwrap();
    assert_eq!((loaded.recording.facts, loaded.warnings), (Some(facts(2)), vec![]));
    let file = rusqlite::Connection::open(&path).unwrap();
    // A later version may say more, and one of before less.
    file.execute_batch("UPDATE facts SET json = replace(json, '\"left_out\":0', '\"new\":[1]')").unwrap();
    assert_eq!(load(&path).unwrap().recording.facts, Some(facts(2)));
    file.execute_batch("UPDATE facts SET json = substr(json, 2)").unwrap();
    let loaded = load(&path).unwrap();
    assert_eq!(
        (loaded.recording.facts, loaded.warnings),
        (None, vec!["the file is damaged in: facts".to_owned()])
    );
    file.execute_batch("DROP TABLE facts").unwrap();
    let loaded = load(&path).unwrap();
    assert_eq!((loaded.recording.facts, loaded.warnings), (None, vec![]));
}

#[test]
fn a_budget_comes_back_as_it_was_last_with_all_its_requests() {
    let folder = tempfile::tempdir().unwrap();
    for (name, with_samples) in [("both.slip", true), ("budget.slip", false)] {
        let path = folder.path().join(name);
        let mut source = Source::default();
        let mut writer = Writer::create(&path, &info(), false).unwrap();
        let mut requests = Vec::new();
        // Small flushes that are packed, some without a budget or requests, and one that is larger than a block.
        for flush in 0..300_u64 {
            let mut batch = if with_samples { source.batch(8) } else { Batch::default() };
            let count = if flush == 200 { 140_000 } else { flush % 3 * 40 };
            batch.served = (0..count).map(|at| served(requests.len() as u64 + at)).collect();
            requests.extend_from_slice(&batch.served);
            batch.budget = (flush % 2 == 0).then(|| budget(requests.len() as u64));
            writer.append(&batch).unwrap();
            if flush == 3 {
                let read = load(&path).unwrap().recording.budget.unwrap();
                assert_eq!(read, Budget { requests: requests.clone(), ..budget(80 + 40) });
            }
        }
        writer
            .append(&Batch { budget: Some(budget(7)), totals: source.totals(), ..Batch::default() })
            .unwrap();
        let expected = Some(Budget { requests, ..budget(7) });
        // What a reader sees before the last of them are packed is the same.
        assert!(load(&path).unwrap().recording.budget == expected);
        writer.finish(source.totals()).unwrap();
        let loaded = load(&path).unwrap();
        assert_eq!(loaded.warnings, [""; 0]);
        assert!(loaded.recording.budget == expected);
        drop(writer);
        let rows = |table| {
            let sql = format!("SELECT count(*) FROM {table}");
            rusqlite::Connection::open(&path)
                .unwrap()
                .query_row(&sql, (), |row| row.get::<_, u32>(0))
                .unwrap()
        };
        assert_eq!(rows("budget"), 1);
        assert!(rows("served") < 10, "small ones are packed: {}", rows("served"));
    }
}

#[test]
fn the_file_is_private_and_says_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.slip");
    let writer = Writer::create(&path, &info(), false).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(&fs::read(&path).unwrap()[68..72], b"SLIP");
    drop(writer);
}

#[test]
fn overwriting_has_to_be_asked_for_and_spares_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.slip");
    let mut source = Source::default();
    let mut writer = Writer::create(&path, &info(), false).unwrap();
    writer.append(&source.batch(FLUSH_SAMPLES)).unwrap();
    assert!(matches!(Writer::create(&path, &info(), false), Err(FileError::Exists { .. })));
    assert!(matches!(Writer::create(&path, &info(), true), Err(FileError::Busy { .. })));
    drop(writer);
    // The journal of an old, killed recording must not be taken for one of the new file.
    fs::write(folder.path().join("a.slip-journal"), b"old").unwrap();
    drop(Writer::create(&path, &info(), true).unwrap());
    assert_eq!(load(&path).unwrap().recording.totals.samples, 0);

    let other = folder.path().join("notes.txt");
    fs::write(&other, "mine").unwrap();
    assert!(matches!(Writer::create(&other, &info(), true), Err(FileError::NotASlipFile { .. })));
    assert_eq!(fs::read(&other).unwrap(), b"mine");
    assert!(matches!(Writer::create(folder.path(), &info(), true), Err(FileError::NotASlipFile { .. })));
    let missing = folder.path().join("no/such/a.slip");
    let error = Writer::create(&missing, &info(), false).unwrap_err();
    assert!(matches!(&error, FileError::NoFolder { path } if path.ends_with("no/such")), "{error}");
}

#[test]
fn a_batch_that_was_left_out_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.slip");
    let mut source = Source::default();
    let mut writer = Writer::create(&path, &info(), false).unwrap();
    let first = source.batch(FLUSH_SAMPLES);
    let mut interner = Interner::new();
    interner.apply(&first.interned);
    interner.string("only in the second batch");
    let second = Batch { interned: interner.take_delta(), ..Batch::default() };
    let error = writer.append(&second).unwrap_err();
    assert!(matches!(error, FileError::OutOfOrder { .. }), "{error}");
    writer.append(&first).unwrap();
    writer.append(&second).unwrap();
    assert_eq!(check_samples(&load(&path).unwrap().recording), FLUSH_SAMPLES);
}

/// How often each reader loads the recording, and what it says each time.
const LOADS: usize = 30;
const LOADED: &str = "loaded";

#[test]
fn readers_see_whole_flushes_while_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.slip");
    let mut source = Source::default();
    let mut writer = Writer::create(&path, &info(), false).unwrap();
    writer.append(&source.batch(FLUSH_SAMPLES)).unwrap();
    // In processes of their own: POSIX locks do not keep threads of one process apart.
    let (sender, loads) = mpsc::channel();
    let mut readers = Vec::new();
    for _ in 0..2 {
        let mut reader = child("child_reads_for_a_while", &path).stdout(Stdio::piped()).spawn().unwrap();
        // The first line begins with the name of the test.
        let (lines, sender) = (BufReader::new(reader.stdout.take().unwrap()).lines(), sender.clone());
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .filter(|line| line.ends_with(LOADED))
                .for_each(|_| sender.send(()).unwrap());
        });
        readers.push(reader);
    }
    drop(sender);
    let (mut flushes, mut retries) = (1, 0);
    // While one reader goes on to its next load.
    for () in loads {
        for _ in 0..4 {
            let batch = source.batch(FLUSH_SAMPLES);
            flushes += 1;
            while let Err(error) = writer.append(&batch) {
                assert!(matches!(error, FileError::Busy { .. }), "{error}");
                retries += 1;
                assert!(retries < 1_000, "readers never let go");
            }
        }
    }
    assert_eq!(flushes, 1 + 2 * LOADS * 4);
    for mut reader in readers {
        assert!(reader.wait().unwrap().success());
    }
    assert_eq!(check_samples(&load(&path).unwrap().recording), source.samples);
}

#[test]
fn child_reads_for_a_while() {
    let Some(path) = child_path() else { return };
    let mut seen = 0;
    for _ in 0..LOADS {
        let loaded = load(&path).unwrap();
        assert!(loaded.being_written);
        assert!(loaded.warnings[0].contains("still running"), "{:?}", loaded.warnings);
        let count = check_samples(&loaded.recording);
        assert_eq!(count % FLUSH_SAMPLES, 0);
        assert_eq!(count, loaded.recording.totals.samples);
        assert!(count >= seen);
        seen = count;
        println!("{LOADED}");
    }
}

/// Time, thread, frames, state, request: any numbers, as long as the ids point to something.
type AnySample = (u64, u32, Vec<u8>, u8, u32);
/// Samples, requests, and strings that nothing points to.
type AnyBatch = (Vec<AnySample>, Vec<Request>, Vec<String>);

fn any_sample() -> impl Strategy<Value = AnySample> {
    (any::<u64>(), 0..6_u32, prop::collection::vec(any::<u8>(), 0..5), any::<u8>(), any::<u32>())
}

fn any_request() -> impl Strategy<Value = Request> {
    let numbers =
        (any::<u32>(), 0..3_u32, any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>(), any::<u64>());
    numbers.prop_map(|(id, process, started_unix_ns, first_ns, last_ns, samples, peak_memory_bytes)| {
        Request {
            id: RequestId(id),
            process: ProcessId(process),
            started_unix_ns: started_unix_ns % (1 << 62),
            first_ns: first_ns % (1 << 62),
            last_ns,
            samples,
            peak_memory_bytes,
            ..Request::default()
        }
    })
}

fn any_wait() -> impl Strategy<Value = Wait> {
    let place = (any::<u64>(), any::<u32>(), any::<u32>(), any::<u8>(), any::<u32>());
    (place, 0..WaitReason::ALL.len(), any::<u32>(), any::<u64>()).prop_map(
        |((time_ns, thread, stack, state, request), reason, count, total_ns)| Wait {
            time_ns,
            thread: ThreadId(thread),
            stack: StackId(stack),
            state: State(state),
            request: RequestId(request),
            reason: WaitReason::ALL[reason],
            count,
            total_ns,
        },
    )
}

fn any_served() -> impl Strategy<Value = ServedRequest> {
    (any::<u32>(), any::<[u64; 4]>(), any::<[u64; 14]>(), any::<[u64; 14]>()).prop_map(
        |(worker, [queued_ns, begin_ns, response_ns, end_ns], serving, after)| ServedRequest {
            worker,
            queued_ns,
            begin_ns,
            response_ns,
            end_ns,
            serving: PartTimes(serving),
            after: PartTimes(after),
        },
    )
}

fn batches() -> impl Strategy<Value = Vec<AnyBatch>> {
    prop::collection::vec(
        (
            prop::collection::vec(any_sample(), 0..80),
            prop::collection::vec(any_request(), 0..8),
            prop::collection::vec(".{0,12}", 0..4),
        ),
        0..6,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn anything_comes_back(input in batches(), interval_ns in any::<u64>(), target in ".*") {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.slip");
        let info = slip_model::RecordingInfo { interval_ns, target, mode: slip_model::Mode::Gil, ..info() };
        let mut writer = Writer::create(&path, &info, false).unwrap();
        let mut interner = Interner::new();
        let mut samples = SampleBlock::default();
        let mut requests = Vec::new();
        let mut processes = Vec::new();
        let mut threads = Vec::new();
        for (given, mut given_requests, texts) in input {
            let mut batch = Batch::default();
            for text in &texts {
                interner.string(text);
            }
            let string = |at: u32, interner: &Interner| StringId(at % interner.sizes().0 as u32);
            for (time_ns, thread, frames, state, request) in given {
                let mut stack = StackId(0);
                for byte in frames {
                    let (name, file) = (string(byte.into(), &interner), string(u32::from(byte) / 3, &interner));
                    let kind = FrameKind::from_number(byte % 4).unwrap();
                    let frame = interner.frame(Frame { kind, name, file, first_line: u32::MAX, line: byte.into() });
                    stack = interner.push(stack, frame);
                }
                let (state, request) = (State(state), RequestId(request));
                let sample = Sample { time_ns, thread: ThreadId(thread), stack, state, request };
                batch.samples.push(sample);
                samples.push(sample);
            }
            for request in &mut given_requests {
                request.uri = string(request.id.0, &interner);
            }
            if processes.is_empty() {
                for id in 0..3 {
                    processes.push(Process { id: ProcessId(id), title: texts.concat(), ..Process::default() });
                }
                for id in 0..6 {
                    let process = ProcessId(id % 3);
                    threads.push(Thread { id: ThreadId(id), process, interpreter: u64::MAX, ..Thread::default() });
                }
                batch.processes.clone_from(&processes);
                batch.threads.clone_from(&threads);
            }
            requests.extend_from_slice(&given_requests);
            batch.requests = given_requests;
            batch.interned = interner.take_delta();
            batch.totals = Totals { samples: samples.len() as u64, own_cpu_ns: u64::MAX, ..Totals::default() };
            writer.append(&batch).unwrap();
        }
        let totals = Totals { samples: samples.len() as u64, ..Totals::default() };
        writer.finish(totals).unwrap();
        let loaded = load(&path).unwrap();
        prop_assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        let recording = loaded.recording;
        prop_assert_eq!(recording.samples().collect::<Vec<_>>(), samples.iter().collect::<Vec<_>>());
        prop_assert_eq!(recording.requests, requests);
        prop_assert_eq!(recording.info, info);
        prop_assert_eq!((recording.processes, recording.threads), (processes, threads));
        prop_assert_eq!(everything(&recording.interner), everything(&interner));
    }

    #[test]
    fn any_block_comes_back(
        samples in prop::collection::vec((any::<u64>(), any::<u32>(), any::<u32>(), any::<u8>(), any::<u32>()), 0..300),
        requests in prop::collection::vec(any_request(), 0..50),
    ) {
        let mut block = SampleBlock::default();
        for (time_ns, thread, stack, state, request) in samples {
            let (thread, stack) = (ThreadId(thread), StackId(stack));
            block.push(Sample { time_ns, thread, stack, state: State(state), request: RequestId(request) });
        }
        let bytes = block::encode(&block, &requests, None);
        prop_assert_eq!(block::decode(&bytes).unwrap(), (block, requests));
    }

    #[test]
    fn any_waits_come_back(waits in prop::collection::vec(any_wait(), 0..300), compress: bool) {
        let mut compressor = compress.then(|| zstd::bulk::Compressor::new(3).unwrap());
        let bytes = wait_block::encode(&waits, compressor.as_mut());
        prop_assert_eq!(wait_block::decode(&bytes).unwrap(), waits);
    }

    #[test]
    fn any_requests_of_a_budget_come_back(served in prop::collection::vec(any_served(), 0..300), compress: bool) {
        let mut compressor = compress.then(|| zstd::bulk::Compressor::new(3).unwrap());
        let bytes = served_block::encode(&served, compressor.as_mut());
        prop_assert_eq!(served_block::decode(&bytes).unwrap(), served);
    }

    #[test]
    fn no_bytes_make_a_block_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = block::decode_body(&bytes);
        let _ = wait_block::decode_body(&bytes);
        let _ = served_block::decode_body(&bytes);
    }
}

/// Everything that an interner holds.
fn everything(interner: &Interner) -> slip_model::InternerDelta {
    let (strings, frames, stacks) = interner.sizes();
    slip_model::InternerDelta {
        first_string: 1,
        strings: (1..strings).map(|at| interner.text(StringId(at as u32)).into()).collect(),
        first_frame: 0,
        frames: (0..frames).map(|at| interner.frame_at(slip_model::FrameId(at as u32))).collect(),
        first_stack: 1,
        stacks: (1..stacks).map(|at| interner.node(StackId(at as u32)).unwrap()).collect(),
    }
}
