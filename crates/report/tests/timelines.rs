//! Formats with an axis of time: whole, and with the same sums as all others.
#![allow(clippy::unwrap_used, reason = "test code")]

#[path = "../../doctor/tests/support/budget.rs"]
mod by_hand;
#[allow(dead_code, unreachable_pub, reason = "a part of it is used")]
#[path = "../src/proto.rs"]
mod proto;
mod support;

use std::collections::BTreeMap;
use std::io::Read as _;

use prost::Message as _;
use slip_model::{Recording, RequestId, Sample, SampleBlock, StackId, State, ThreadId};
use slip_report::{Format, Options, render};
use support::{both_languages, chrome, firefox, html, kernel_frames, only_waits, samples_and_waits};

fn recordings() -> Vec<Recording> {
    let mut with_budget = both_languages();
    with_budget.budget = Some(by_hand::budget());
    let only_budget = Recording { budget: Some(by_hand::budget()), ..Recording::default() };
    vec![
        both_languages(),
        samples_and_waits(),
        only_waits(),
        kernel_frames(),
        with_budget,
        only_budget,
        Recording::default(),
    ]
}

/// Wall and CPU time.
fn pprof_ns(bytes: &[u8]) -> (u64, u64) {
    let mut profile = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut profile).unwrap();
    let profile = proto::Profile::decode(&profile[..]).unwrap();
    let sum = |at: usize| profile.sample.iter().map(|sample| sample.value[at] as u64).sum();
    (sum(1), sum(2))
}

#[test]
fn all_formats_have_the_same_total() {
    for recording in recordings() {
        for include_idle in [false, true] {
            let options = Options { include_idle, ..Options::default() };
            let bytes = |format| render(&recording, format, &options).unwrap();
            let expected = pprof_ns(&bytes(Format::Pprof));
            assert_eq!(firefox::read(&bytes(Format::Firefox)).total_ns(), expected);
            assert_eq!(chrome::read(&bytes(Format::Chrome)).total_ns(), expected);
            assert_eq!(html::read(&bytes(Format::Html)).weights.total_ns(), expected);
            let speedscope: serde_json::Value = serde_json::from_slice(&bytes(Format::Speedscope)).unwrap();
            assert_eq!(speedscope["profiles"][0]["endValue"], expected.0);
        }
    }
}

#[test]
fn each_stack_has_the_time_that_pprof_gives_it() {
    for recording in recordings() {
        let options = Options { include_idle: true, ..Options::default() };
        let json = render(&recording, Format::Speedscope, &options).unwrap();
        let speedscope: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let mut expected: BTreeMap<Vec<&str>, u64> = BTreeMap::new();
        let all = &speedscope["profiles"][0];
        let name = |frame: &serde_json::Value| {
            speedscope["shared"]["frames"][frame.as_u64().unwrap() as usize]["name"].as_str().unwrap()
        };
        for (stack, weight) in
            all["samples"].as_array().unwrap().iter().zip(all["weights"].as_array().unwrap())
        {
            let names = stack.as_array().unwrap().iter().map(name).collect();
            *expected.entry(names).or_default() += weight.as_u64().unwrap();
        }
        let profile = firefox::read(&render(&recording, Format::Firefox, &options).unwrap());
        let mut found: BTreeMap<Vec<&str>, u64> = BTreeMap::new();
        for thread in &profile.threads {
            for (stack, ns) in thread.stacks() {
                *found.entry(stack).or_default() += ns;
            }
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn workers_between_requests_are_gaps() {
    let profile = firefox::read(&render(&both_languages(), Format::Firefox, &Options::default()).unwrap());
    let gaps: Vec<_> = profile
        .threads
        .iter()
        .map(|thread| thread.samples.stack.iter().filter(|stack| stack.is_none()).count())
        .collect();
    assert_eq!(gaps, [1, 1, 0, 0, 0]);
}

#[test]
fn requests_and_waits_have_their_times() {
    let mut recording = both_languages();
    let markers = |recording: &Recording| {
        let profile = firefox::read(&render(recording, Format::Firefox, &Options::default()).unwrap());
        let mut lines = Vec::new();
        for thread in &profile.threads {
            let markers = &thread.markers;
            for at in 0..markers.length {
                let (start, end) = (markers.start_time[at], markers.end_time[at]);
                lines.push((thread.process_name.clone(), firefox::ns(start), firefox::ns(end)));
            }
        }
        lines
    };
    let events = |recording: &Recording| {
        let trace = chrome::read(&render(recording, Format::Chrome, &Options::default()).unwrap());
        trace.trace_events.iter().filter(|event| ["X", "b"].contains(&event["ph"].as_str().unwrap())).count()
    };
    let www = "php-fpm: pool www";
    let seen: Vec<_> = recording.requests.iter().map(|request| (request.first_ns, request.last_ns)).collect();
    let expected: Vec<_> =
        seen.iter().map(|(first, last)| (www.to_owned(), *first, *last + support::INTERVAL_NS)).collect();
    assert_eq!((markers(&recording), events(&recording)), (expected, 2));

    // With a budget it is what was measured.
    let budget = by_hand::budget();
    let mut expected: Vec<_> = budget
        .requests
        .iter()
        .map(|request| {
            let worker = &budget.workers[request.worker as usize];
            ((worker.pid, worker.tid), worker.title.clone(), request.begin_ns, request.end_ns)
        })
        .collect();
    expected.sort();
    let expected: Vec<_> = expected.into_iter().map(|(_, title, begin, end)| (title, begin, end)).collect();
    recording.budget = Some(budget);
    assert_eq!(
        (markers(&recording), events(&recording)),
        (expected, recording.budget.unwrap().requests.len())
    );

    let recording = samples_and_waits();
    let of_waits = recording.waits.iter().filter(|wait| !wait.state.has(State::IDLE));
    let mut expected: Vec<_> = of_waits.map(|wait| wait.total_ns.min(wait.time_ns)).collect();
    let waits = markers(&recording);
    let mut found: Vec<_> = waits.iter().map(|(_, start, end)| end - start).collect();
    expected.sort_unstable();
    found.sort_unstable();
    // Among the found are its requests.
    expected.retain(|ns| !found.contains(ns));
    assert!(expected.is_empty(), "{expected:?} in {found:?}");
}

#[test]
fn requests_that_share_their_worker_are_no_events_of_its_thread() {
    let mut recording = Recording { budget: Some(by_hand::budget()), ..Recording::default() };
    let budget = recording.budget.as_mut().unwrap();
    let request = budget.requests[0];
    budget.requests.push(slip_model::ServedRequest { begin_ns: request.begin_ns + 1, ..request });
    let trace = chrome::read(&render(&recording, Format::Chrome, &Options::default()).unwrap());
    let count = |ph: &str| trace.trace_events.iter().filter(|event| event["ph"] == ph).count();
    let all = recording.budget.unwrap().requests.len();
    assert_eq!((count("X"), count("b"), count("e")), (all - 1, 1, 1));
}

#[test]
fn names_are_harmless() {
    let hostile = "\x1b[31m`|<b>\n\u{202e}";
    let mut recording = samples_and_waits();
    recording.info.target = hostile.into();
    recording.info.host = hostile.into();
    recording.info.cannot_see = vec![hostile.into()];
    recording.processes[0].title = hostile.into();
    let text = recording.interner.string(hostile);
    recording.threads[0].name = text;
    recording.requests.iter_mut().for_each(|request| request.uri = text);
    let frame = recording.interner.frame(slip_model::Frame { name: text, file: text, ..Default::default() });
    let stack = recording.interner.push(StackId(0), frame);
    let mut block = SampleBlock::default();
    block.push(Sample { stack, thread: ThreadId(0), request: RequestId(0), ..Sample::default() });
    recording.blocks.push(block);
    let options = Options { notes: vec![hostile.into()], ..Options::default() };
    for format in [Format::Firefox, Format::Chrome] {
        let json = String::from_utf8(render(&recording, format, &options).unwrap()).unwrap();
        assert!(json.contains("\\\\x1b[31m") && !json.contains(['\x1b', '\u{202e}', '\n']), "{json}");
        assert!(!json.contains("\\u001b") && !json.contains("\\n"), "{json}");
    }
}

#[test]
fn more_than_a_reader_takes_is_written_by_stack() {
    let mut recording = both_languages();
    let mut block = SampleBlock::default();
    let stacks = recording.interner.sizes().2 as u32;
    for at in 0..1_100_000_u32 {
        let stack = StackId(at % stacks);
        let time_ns = u64::from(at) * 1_000;
        block.push(Sample { time_ns, thread: ThreadId(at % 5), stack, ..Sample::default() });
    }
    recording.blocks.push(block);
    let options = Options::default();
    let expected = pprof_ns(&render(&recording, Format::Pprof, &options).unwrap());
    let profile = render(&recording, Format::Firefox, &options).unwrap();
    let trace = render(&recording, Format::Chrome, &options).unwrap();
    assert!(profile.len() < 100_000 && trace.len() < 100_000);
    let (profile, trace) = (firefox::read(&profile), chrome::read(&trace));
    assert_eq!((profile.total_ns(), trace.total_ns()), (expected, expected));
    assert!(profile.threads[0].name.ends_with(" (by stack, not in the order of time)"));
}
