//! What holds for every recording: nothing is lost, nothing exceeds 100 %, order makes no difference.
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::io::Read as _;

use proptest::prelude::*;
use slip_model::{
    Frame, FrameKind, Language, Recording, RequestId, Sample, SampleBlock, StackId, State, ThreadId, Wait,
    WaitReason,
};
use slip_report::{Format, Options, Summary, render};
use support::{Builder, both_languages};

/// Samples of four threads, with stacks of up to six out of nine frames, some recursive.
fn recordings() -> impl Strategy<Value = Recording> {
    let frames = prop::collection::vec(0..9_u32, 0..6);
    let sample = (0..4_u32, frames, any::<u8>(), 0..6_u32);
    (prop::collection::vec(sample, 0..60), "[\\PC\n\x1b;`|]{0,6}").prop_map(|(samples, name)| {
        let mut b = Builder::new(&name);
        for pid in 0..2 {
            let process = b.process(Language::Python, "3.13", pid, if pid == 0 { &name } else { "b" });
            b.thread(process, pid, 0, "");
            b.thread(process, pid + 10, u64::from(pid), &name);
        }
        for (thread, frames, state, request) in samples {
            let mut stack = StackId(0);
            for number in frames {
                let interner = &mut b.recording.interner;
                let text = interner.string(&format!("{name}{}", number / 2));
                let kind = FrameKind::from_number((number / 2) as u8 % 9).unwrap();
                let frame = interner.frame(Frame { kind, name: text, line: number, ..Frame::default() });
                stack = interner.push(stack, frame);
            }
            b.samples(1, ThreadId(thread), stack, State(state), request);
        }
        for id in 1..4 {
            b.request(id, slip_model::ProcessId(0), "GET", if id == 1 { "/a" } else { &name }, 3, 0);
        }
        b.finish()
    })
}

/// The same with some of the samples turned into waits.
fn recordings_with_waits() -> impl Strategy<Value = Recording> {
    let wait = (0..20_u32, 0..5_000_000_000_u64, 0..WaitReason::ALL.len());
    (recordings(), prop::collection::vec(prop::option::of(wait), 60)).prop_map(|(mut recording, waits)| {
        let mut block = SampleBlock::default();
        let samples: Vec<Sample> = recording.samples().collect();
        for (sample, wait) in samples.into_iter().zip(waits) {
            let Some((count, total_ns, reason)) = wait else {
                block.push(sample);
                continue;
            };
            let Sample { time_ns, thread, stack, state, request } = sample;
            let reason = WaitReason::ALL[reason];
            recording.waits.push(Wait { time_ns, thread, stack, state, request, reason, count, total_ns });
        }
        recording.blocks = vec![block];
        recording
    })
}

fn shuffled(recording: &Recording) -> Recording {
    let mut samples: Vec<Sample> = recording.samples().collect();
    samples.sort_by_key(|sample| sample.time_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut block = SampleBlock::default();
    samples.into_iter().for_each(|sample| block.push(sample));
    let mut waits = recording.waits.clone();
    waits.reverse();
    Recording { blocks: vec![block], waits, ..recording.clone() }
}

fn text(recording: &Recording, format: Format, include_idle: bool) -> String {
    let options = Options { include_idle, ..Options::default() };
    String::from_utf8(render(recording, format, &options).unwrap()).unwrap()
}

fn collapsed_weight(recording: &Recording, include_idle: bool) -> u64 {
    let text = text(recording, Format::Collapsed, include_idle);
    text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn folding_ignores_order_and_keeps_the_weight(recording in recordings()) {
        let all = recording.samples().count() as u64;
        let busy = recording.samples().filter(|sample| !sample.state.has(State::IDLE)).count() as u64;
        prop_assert_eq!(collapsed_weight(&recording, true), all);
        prop_assert_eq!(collapsed_weight(&recording, false), busy);
        let other = shuffled(&recording);
        for format in [Format::Collapsed, Format::Json, Format::Markdown] {
            prop_assert_eq!(text(&recording, format, true), text(&other, format, true));
        }
        for format in Format::ALL {
            let options = Options::default();
            prop_assert_eq!(render(&recording, format, &options).unwrap(), render(&recording, format, &options).unwrap());
        }
    }

    #[test]
    fn waits_weigh_what_they_took(recording in recordings_with_waits()) {
        let samples = recording.samples().count() as u64;
        let waits_ns: u64 = recording.waits.iter().map(|wait| wait.total_ns).sum();
        let all_ns = samples * support::INTERVAL_NS + waits_ns;
        let summary = Summary::of(&recording);
        prop_assert_eq!(summary.time.total_ns(), all_ns);
        prop_assert_eq!(summary.groups.iter().map(|group| group.time.total_ns()).sum::<u64>(), all_ns);
        let own: u64 = summary.functions.iter().map(|function| function.own_ns).sum();
        prop_assert_eq!(own + summary.frameless_ns + summary.time.engine_ns, summary.time.busy_ns());
        let of_stacks: u64 = summary.stacks.iter().map(|hot| hot.ns).sum();
        prop_assert_eq!(of_stacks + summary.frameless_ns + summary.time.engine_ns, summary.time.busy_ns());

        let of_reasons: u64 = summary.waits.reasons.iter().map(|of| of.total_ns).sum();
        prop_assert_eq!((of_reasons, of_reasons + summary.waits.idle_ns), (summary.waits.total_ns, waits_ns));
        let counts: u64 = recording.waits.iter().map(|wait| u64::from(wait.count)).sum();
        prop_assert_eq!(summary.waits.count + summary.waits.idle_count, counts);
        for of in &summary.waits.reasons {
            let busy = recording.waits.iter().filter(|wait| wait.reason == of.reason && !wait.state.has(State::IDLE));
            prop_assert_eq!(busy.map(|wait| wait.total_ns).sum::<u64>(), of.total_ns);
        }

        let other = shuffled(&recording);
        for format in [Format::Collapsed, Format::Json, Format::Markdown, Format::Speedscope] {
            // The order of samples shows in Speedscope unless there are waits.
            if format != Format::Speedscope || !recording.waits.is_empty() {
                prop_assert_eq!(text(&recording, format, true), text(&other, format, true));
            }
        }
        if !recording.waits.is_empty() {
            let lines = text(&recording, Format::Collapsed, true).lines().count() as u64;
            let difference = (collapsed_weight(&recording, true) * 1_000).abs_diff(all_ns);
            prop_assert!(difference <= (lines + recording.waits.len() as u64) * 500, "{difference} ns");
        }
        let json = serde_json::from_str(&text(&recording, Format::Speedscope, true)).unwrap();
        check_speedscope(&json);
        prop_assert_eq!(json["profiles"][0]["endValue"].as_u64().unwrap(), all_ns);
        let profile = support::firefox::read(text(&recording, Format::Firefox, true).as_bytes());
        let trace = support::chrome::read(text(&recording, Format::Chrome, true).as_bytes());
        prop_assert_eq!(profile.total_ns().0, all_ns);
        prop_assert_eq!(profile.total_ns(), trace.total_ns());
        let markdown = text(&recording, Format::Markdown, false);
        for number in markdown.split(" %").filter_map(|before| before.rsplit([' ', '(', '|']).next()?.parse::<f64>().ok()) {
            prop_assert!(number <= 100.0, "{number} in {markdown}");
        }
    }

    #[test]
    fn speedscope_files_hold_together(recording in recordings(), include_idle: bool) {
        let json: serde_json::Value = serde_json::from_str(&text(&recording, Format::Speedscope, include_idle)).unwrap();
        check_speedscope(&json);
        let weight = collapsed_weight(&recording, include_idle) * support::INTERVAL_NS;
        let profiles = json["profiles"].as_array().unwrap();
        prop_assert_eq!(profiles[0]["endValue"].as_u64().unwrap(), weight);
        prop_assert_eq!(profiles[1..].iter().map(|one| one["endValue"].as_u64().unwrap()).sum::<u64>(), weight);
    }

    #[test]
    fn no_share_exceeds_the_whole(recording in recordings()) {
        let summary = Summary::of(&recording);
        let busy = summary.time.busy_ns();
        let own: u64 = summary.functions.iter().map(|function| function.own_ns).sum();
        prop_assert_eq!(own + summary.frameless_ns + summary.time.engine_ns, busy);
        for function in &summary.functions {
            prop_assert!(function.own_ns <= function.total_ns && function.total_ns <= busy);
            prop_assert!(function.own_on_cpu_ns <= function.own_ns);
        }
        // The total of a function, the slow way.
        for function in &summary.functions {
            let in_stack = |sample: &Sample| {
                let frames =
                    recording.interner.frames_of(sample.stack).map(|id| recording.interner.frame_at(id));
                // What the kernel does is time of who called it, and an instruction is one of its function.
                let is_inner = |frame: &Frame| matches!(frame.kind, FrameKind::Kernel | FrameKind::Instruction);
                let mut frames = frames.skip_while(is_inner);
                frames.any(|frame| (frame.kind, frame.name) == (function.kind, function.name))
            };
            let code = |sample: &Sample| !sample.state.has(State::IDLE) && !sample.state.has(State::ENGINE);
            let total = recording.samples().filter(|sample| code(sample) && in_stack(sample)).count() as u64;
            prop_assert_eq!(function.total_ns, total * support::INTERVAL_NS);
        }
        let routes: u64 = summary.requests.routes.iter().map(|route| route.busy_ns).sum();
        prop_assert!(routes <= summary.requests.serving_ns);
        let markdown = text(&recording, Format::Markdown, false);
        for number in markdown.split(" %").filter_map(|before| before.rsplit([' ', '(', '|']).next()?.parse::<f64>().ok()) {
            prop_assert!(number <= 100.0, "{number} in {markdown}");
        }
    }

    #[test]
    fn nothing_reaches_the_terminal_that_it_would_obey(recording in recordings()) {
        for format in [Format::Markdown, Format::Collapsed] {
            let text = text(&recording, format, true);
            prop_assert!(!text.contains(|character: char| character.is_control() && character != '\n'));
        }
        for line in text(&recording, Format::Collapsed, true).lines() {
            prop_assert!(line.rsplit_once(' ').unwrap().1.parse::<u64>().is_ok());
        }
    }

    #[test]
    fn a_report_fits_on_a_page(groups in 1..9_u32, with_waits: bool, names in prop::collection::vec(".{0,200}", 30)) {
        let mut b = Builder::new(&names[0]);
        for at in 0..groups {
            let process = b.process(Language::Python, &names[1], at, &names[at as usize]);
            let thread = b.thread(process, at, 0, &names[2]);
            let other = b.thread(process, at + 50, 0, &names[3]);
            for (number, name) in names.iter().enumerate() {
                let caller = format!("caller {number}@{name}:1:2");
                let callee = format!("{}@{name}:{number}:{number}", name.replace('@', ""));
                let stack = b.stack(FrameKind::Php, &["{main}@/a:1:1", &caller, &callee]);
                b.samples(1 + number as u32 % 3, thread, stack, State::HAS_GIL, 1 + number as u32);
                b.samples(1, other, StackId(0), State::ENGINE, 0);
                b.samples(1, other, StackId(0), State::ON_CPU, 0);
                if with_waits {
                    let reason = WaitReason::ALL[number % WaitReason::ALL.len()];
                    b.wait(thread, stack, State::default(), 1 + number as u32, reason, 1, 9_000_000);
                }
                b.request(1 + number as u32, process, "GET", name, 4, 7);
            }
        }
        let mut recording = b.finish();
        recording.totals.filtered = 4;
        recording.info.cannot_see = names.clone();
        let options = Options { notes: names, ..Options::default() };
        let text = String::from_utf8(render(&recording, Format::Markdown, &options).unwrap()).unwrap();
        let most = if with_waits { 90 } else { 80 };
        prop_assert!(text.lines().count() <= most, "{} lines:\n{text}", text.lines().count());
    }
}

#[test]
fn a_damaged_recording_gives_some_report() {
    let mut recording = support::both_languages();
    let mut block = SampleBlock::default();
    for number in [0, 1, 2, 7, u32::MAX] {
        block.push(Sample {
            time_ns: u64::MAX - u64::from(number),
            thread: ThreadId(number),
            stack: StackId(number),
            state: State(number as u8),
            request: RequestId(number),
        });
    }
    for (sample, number) in block.iter().zip(0..) {
        let Sample { time_ns, thread, stack, state, request } = sample;
        let (reason, total_ns) = (WaitReason::ALL[number], u64::MAX);
        recording.waits.push(Wait {
            time_ns,
            thread,
            stack,
            state,
            request,
            reason,
            count: u32::MAX,
            total_ns,
        });
    }
    recording.blocks.push(block);
    recording.info.interval_ns = u64::MAX;
    recording.info.started_unix_ns = u64::MAX;
    recording.totals.duration_ns = u64::MAX;
    recording.totals.own_cpu_ns = u64::MAX;
    recording.threads[1].process = slip_model::ProcessId(99);
    recording.requests[0].id = RequestId(u32::MAX);
    recording.requests[1].last_ns = 0;
    recording.requests[1].uri = slip_model::StringId(999_999);
    for interval_ns in [u64::MAX, 0] {
        recording.info.interval_ns = interval_ns;
        for format in Format::ALL {
            render(&recording, format, &Options { include_idle: true, ..Options::default() }).unwrap();
        }
    }
}

#[test]
fn stacks_a_million_deep_take_no_time() {
    let mut b = Builder::new("");
    let process = b.process(Language::Python, "3.13", 1, "deep");
    let thread = b.thread(process, 1, 0, "");
    let name = b.recording.interner.string("f");
    let mut stack = StackId(0);
    for line in 0..200_000 {
        let frame = b.recording.interner.frame(Frame { name, line: line % 100, ..Frame::default() });
        stack = b.recording.interner.push(stack, frame);
        if line % 100 == 0 {
            b.samples(1, thread, stack, State::ON_CPU, 0);
        }
    }
    let recording = b.finish();
    let summary = Summary::of(&recording);
    assert_eq!(summary.functions[0].total_ns, 2_000 * support::INTERVAL_NS);
    for format in [Format::Markdown, Format::Html, Format::Json, Format::Firefox, Format::Chrome] {
        render(&recording, format, &Options::default()).unwrap();
    }
}

/// What speedscope's schema and importer ask for.
fn check_speedscope(json: &serde_json::Value) {
    assert_eq!(json["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let frames = json["shared"]["frames"].as_array().unwrap();
    for frame in frames {
        assert!(frame["name"].is_string());
        for key in frame.as_object().unwrap().keys() {
            assert!(["name", "file", "line"].contains(&key.as_str()));
        }
    }
    let profiles = json["profiles"].as_array().unwrap();
    assert!(json["activeProfileIndex"].as_u64().unwrap() < profiles.len() as u64);
    for profile in profiles {
        assert_eq!((&profile["type"], &profile["unit"]), (&"sampled".into(), &"nanoseconds".into()));
        assert!(profile["name"].is_string());
        let samples = profile["samples"].as_array().unwrap();
        let weights = profile["weights"].as_array().unwrap();
        assert_eq!(samples.len(), weights.len());
        let sum: u64 = weights.iter().map(|weight| weight.as_u64().unwrap()).sum();
        assert_eq!((&profile["startValue"], &profile["endValue"]), (&0.into(), &sum.into()));
        for sample in samples {
            for frame in sample.as_array().unwrap() {
                assert!(frame.as_u64().unwrap() < frames.len() as u64);
            }
        }
    }
}

#[test]
fn pprof_is_the_same_in_every_run() {
    let bytes = render(&support::both_languages(), Format::Pprof, &Options::default()).unwrap();
    // No time and no file name in the gzip header.
    assert_eq!(bytes[..8], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0]);
    let mut profile = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut profile).unwrap();
    assert!(profile.len() > 500);
}

#[test]
fn collapsed_lines_are_split_as_flame_graph_tools_do_it() {
    let text = text(&both_languages(), Format::Collapsed, false);
    let mut last = "";
    for line in text.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        assert!(count.parse::<u64>().unwrap() > 0);
        assert!(stack.split(';').all(|frame| !frame.is_empty()));
        assert!(stack > last, "sorted, and each stack once");
        last = stack;
    }
}
