//! What each format looks like. Read the difference before accepting a new one (`make bless`).
#![allow(clippy::unwrap_used, reason = "test code")]

#[path = "../../doctor/tests/support/budget.rs"]
mod by_hand;
mod support;

use slip_doctor::{BudgetDiff, BudgetTable, Sheet};
use slip_model::Recording;
use slip_report::{
    BudgetFormat, Format, Options, render, render_budget, render_budget_diff, render_rule, render_rules,
    render_sheet,
};
use support::{Builder, both_languages, kernel_frames, only_waits, samples_and_waits};

fn text(format: Format, options: &Options) -> String {
    String::from_utf8(render(&both_languages(), format, options).unwrap()).unwrap()
}

#[test]
fn markdown() {
    insta::assert_snapshot!(text(Format::Markdown, &Options::default()));
}

#[test]
fn markdown_with_everything() {
    let options = Options {
        top: 3,
        include_idle: true,
        per_worker: true,
        kept: false,
        notes: vec!["the file is cut short: 5 of 9 bytes are there".into(), "<img src=x>".into()],
    };
    insta::assert_snapshot!(text(Format::Markdown, &options));
}

#[test]
fn json() {
    insta::assert_snapshot!(text(Format::Json, &Options { top: 3, ..Options::default() }));
}

#[test]
fn collapsed() {
    insta::assert_snapshot!(text(Format::Collapsed, &Options::default()));
}

#[test]
fn collapsed_with_idle_per_worker() {
    let options = Options { include_idle: true, per_worker: true, ..Options::default() };
    insta::assert_snapshot!(text(Format::Collapsed, &options));
}

#[test]
fn speedscope() {
    let json: serde_json::Value =
        serde_json::from_str(&text(Format::Speedscope, &Options::default())).unwrap();
    insta::assert_json_snapshot!(json);
}

#[test]
fn firefox_and_chrome() {
    use slip_model::{FrameKind, Language, State, WaitReason};
    let mut b = Builder::new("--fpm www");
    let process = b.process(Language::Php, "8.4.1", 7, "php-fpm: pool www");
    let thread = b.thread(process, 7, 0, "");
    let stack = b.stack(FrameKind::Php, &["{main}@/srv/index.php:1:12", "mysqli_query"]);
    b.samples(1, thread, stack, State::IDLE, 0);
    b.samples(2, thread, stack, State::ON_CPU, 1);
    b.wait(thread, stack, State::default(), 1, WaitReason::Socket, 3, 1_234_567);
    b.request(1, process, "GET", "/cart", 3, 2_097_152);
    let mut recording = b.finish();
    let mut golden = |what: &str| {
        for format in [Format::Firefox, Format::Chrome] {
            let options = Options { notes: vec!["a note".into()], ..Options::default() };
            let json = render(&recording, format, &options).unwrap();
            let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
            insta::assert_json_snapshot!(format!("{}{what}", format.name()), json);
        }
        // The second time with what was measured, of a worker that no sample saw.
        let mut budget = by_hand::budget();
        budget.requests.truncate(2);
        recording = Recording { budget: Some(budget), ..Recording::default() };
    };
    golden("");
    golden("_with_budget");
}

#[test]
fn waits_beside_samples() {
    text_formats("waits", &samples_and_waits());
}

#[test]
fn kernel_frames_inside_of_the_interpreter_s() {
    text_formats("kernel", &kernel_frames());
}

fn text_formats(what: &str, recording: &Recording) {
    for format in [Format::Markdown, Format::Json, Format::Collapsed, Format::Speedscope] {
        let options = Options { top: 6, include_idle: format == Format::Collapsed, ..Options::default() };
        let text = String::from_utf8(render(recording, format, &options).unwrap()).unwrap();
        let name = format!("{what}_{}", format.name());
        if format == Format::Speedscope {
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            insta::assert_json_snapshot!(name, json);
        } else {
            insta::assert_snapshot!(name, text);
        }
    }
}

#[test]
fn a_budget_comes_before_what_was_sampled() {
    let mut recording = both_languages();
    recording.budget = Some(by_hand::budget());
    let text = render(&recording, Format::Markdown, &Options::default()).unwrap();
    let text = String::from_utf8(text).unwrap();
    let without = render(&both_languages(), Format::Markdown, &Options::default()).unwrap();
    let (begin, rest) = text.split_once("\n## Where the workers' time went").unwrap();
    assert!(String::from_utf8(without).unwrap().ends_with(rest), "nothing else changes");
    insta::assert_snapshot!(begin);
}

#[test]
fn samples_tell_how_much_code_is_the_engine() {
    let mut recording = both_languages();
    recording.budget = Some(by_hand::budget());
    let table = BudgetTable::of(&recording).unwrap();
    let text = String::from_utf8(render_budget(&table, BudgetFormat::Table).unwrap()).unwrap();
    let line = text.lines().find(|line| line.contains("of which engine")).unwrap();
    insta::assert_snapshot!(line.split("  ").last().unwrap(), @"20.0 % of it, by 20 samples of PHP on a CPU: start-up, compilation, shutdown");
}

#[test]
fn names_in_a_budget_are_harmless() {
    let hostile = "\x1b[31m`|<b>\n\u{202e}";
    let mut budget = by_hand::budget();
    budget.rung = hostile.into();
    budget.cannot_see = vec![hostile.into()];
    budget.endpoints[0].address = hostile.into();
    budget.takers[1].name = hostile.into();
    let recording = Recording { budget: Some(budget), ..Recording::default() };
    let table = BudgetTable::of(&recording).unwrap();
    let diff = BudgetDiff::of(&table, &table);
    for format in [BudgetFormat::Table, BudgetFormat::Markdown, BudgetFormat::Json] {
        for text in [render_budget(&table, format), render_budget_diff(&diff, [hostile; 2], format)] {
            let text = String::from_utf8(text.unwrap()).unwrap();
            assert!(!text.contains(['\x1b', '\u{202e}']), "{text}");
            assert!(format == BudgetFormat::Json || text.contains("\\x1b[31m"), "{text}");
            assert!(!text.contains("\n<b>") && !text.contains(" <b>"), "{text}");
        }
    }
}

#[test]
fn budgets_that_contradict_themselves_say_so() {
    let mut budget = by_hand::budget();
    budget.workers[0].watched_ns += 5_000;
    budget.workers[1].watched_ns -= 7_000;
    budget.requests[0].response_ns += 9_000;
    budget.requests[1].response_ns -= 2_000;
    let recording = Recording { budget: Some(budget), ..Recording::default() };
    let table = BudgetTable::of(&recording).unwrap();
    let text = String::from_utf8(render_budget(&table, BudgetFormat::Table).unwrap()).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("UNKNOWN") || line.contains("twice"));
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r"
    UNKNOWN                           0.2 %    5.0 µs  watched, but in none of these
    - The lines are 7.0 µs longer than the workers were watched: some time counts twice.
    UNKNOWN   1.0 %  0.002  0.000  0.009  0.009
    - The lines are 2.0 µs longer than these requests took: some time counts twice.
    ");
}

#[test]
fn waits_alone() {
    let options = Options { per_worker: true, ..Options::default() };
    let text = render(&only_waits(), Format::Markdown, &options).unwrap();
    insta::assert_snapshot!(String::from_utf8(text).unwrap());
}

#[test]
fn requests_of_php_s_command_line_are_called_by_their_script() {
    for (script, cell) in [("/srv/run.php", "| `/srv/run.php` |"), ("", "| [unnamed]")] {
        let mut recording = both_languages();
        let script = recording.interner.string(script);
        for request in &mut recording.requests {
            (request.method, request.uri) = Default::default();
            request.script = script;
        }
        let text = render(&recording, Format::Markdown, &Options::default()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(cell), "{text}");
    }
}

#[test]
fn headlines() {
    let first_line = |recording| {
        let text =
            String::from_utf8(render(&recording, Format::Markdown, &Options::default()).unwrap()).unwrap();
        text.lines().next().unwrap().to_owned()
    };
    use slip_model::{FrameKind, Language, Mode, StackId, State, WaitReason};
    let mut lines = vec![first_line(both_languages()), first_line(Builder::new("").finish())];
    let cases: [&[(u32, usize, State)]; 6] = [
        &[(10, 0, State::IDLE)],
        &[(190, 0, State::IDLE), (10, 1, State::ON_CPU)],
        &[(10, 1, State::CPU_UNKNOWN)],
        &[(10, 2, State::ON_CPU)],
        &[(10, 0, State::ENGINE), (3, 1, State::ON_CPU)],
        &[(10, 0, State::ON_CPU)],
    ];
    for case in cases {
        let mut b = Builder::new("");
        let process = b.process(Language::Php, "8.4.1", 7, "php-fpm: pool a");
        let thread = b.thread(process, 7, 0, "");
        let frame = "App\\Price::tax@/srv/app/src/Price.php:8:14";
        let stacks = [
            StackId(0),
            b.stack(FrameKind::Php, &["{main}@/srv/app/index.php:1:2", frame]),
            b.stack(FrameKind::Php, &["{main}@/srv/app/index.php:1:2", frame, "preg_match"]),
        ];
        for (count, stack, state) in case {
            b.samples(*count, thread, stacks[*stack], *state, 0);
        }
        lines.push(first_line(b.finish()));
    }
    // A worker of Python waits for its next request in code of its own.
    for cases in [[(65, 0, State::default()), (20, 1, State::ON_CPU)], [(65, 0, State::default()); 2]] {
        let mut b = Builder::new("");
        let process = b.process(Language::Python, "3.13.1", 7, "gunicorn: worker [shop]");
        let thread = b.thread(process, 7, 0, "MainThread");
        let run = "SyncWorker.run@/srv/py/sync.py:100:120";
        let stacks = [
            b.stack(FrameKind::Python, &[run, "SyncWorker.wait@/srv/py/sync.py:30:34"]),
            b.stack(FrameKind::Python, &[run, "Shop.price@/srv/py/shop.py:5:9"]),
        ];
        for (count, stack, state) in cases {
            b.samples(count, thread, stacks[stack], state, 0);
        }
        lines.push(first_line(b.finish()));
    }
    // What it waits for is known; one that runs takes samples meanwhile, or none are taken.
    let mut waits = |language, reason, samples| {
        let mut b = Builder::new("");
        b.recording.info.mode = if samples > 0 { Mode::Wall } else { Mode::Offcpu };
        let process = b.process(language, "1", 7, "workers");
        let thread = b.thread(process, 7, 0, "");
        let kind = if language == Language::Php { FrameKind::Php } else { FrameKind::Python };
        let stacks = [
            b.stack(kind, &["main@/srv/a:1:2", "wait@/srv/a:5:6"]),
            b.stack(kind, &["main@/srv/a:1:2", "run@/srv/a:8:9"]),
        ];
        b.samples(samples, thread, stacks[1], State::ON_CPU, 0);
        for reason in reason {
            b.wait(thread, stacks[0], State::default(), 0, reason, 5, 60_000_000);
        }
        lines.push(first_line(b.finish()));
    };
    for reason in WaitReason::ALL {
        waits(Language::Php, vec![reason], 4);
    }
    waits(Language::Php, vec![WaitReason::Socket, WaitReason::File, WaitReason::Lock], 0);
    waits(Language::Python, vec![WaitReason::Lock], 4);
    waits(Language::Python, vec![WaitReason::Lock], 0);
    waits(Language::Php, vec![], 0);
    insta::assert_snapshot!(lines.join("\n"));
}

/// 400 requests of 20 ms, of which 15 are the quota's, with calls to Redis and a boot that samples have seen.
fn ill() -> Recording {
    use slip_model::{CallPart, CpuQuota, CpuTaker, Lengths, Part, ServedRequest, Worker};
    const MS: u64 = 1_000_000;
    let mut recording = both_languages();
    let mut budget = by_hand::budget();
    let serving = by_hand::times(&[
        (Part::Boot, MS),
        (Part::Code, 3 * MS),
        (Part::Connect, MS / 2),
        (Part::Wait, MS / 2),
        (Part::Wake, 15 * MS),
    ]);
    let worker = Worker { pid: 101, tid: 101, title: "php-fpm: pool www".into(), ..budget.workers.remove(0) };
    let (mut requests, mut at) = (Vec::new(), 0);
    for _ in 0..400 {
        let begin_ns = at + MS;
        let end_ns = begin_ns + serving.total_ns();
        requests.push(ServedRequest {
            queued_ns: begin_ns,
            begin_ns,
            response_ns: end_ns,
            end_ns,
            serving,
            ..ServedRequest::default()
        });
        at = end_ns;
    }
    let mut times = by_hand::times(&[]);
    (0..400).for_each(|_| times.add(&serving));
    let mut endpoint = worker.endpoints[0];
    (endpoint.connects, endpoint.calls) = (400, 5_200);
    (endpoint.connect_ns, endpoint.transfer_ns, endpoint.wait_ns) = (200 * MS, 0, 200 * MS);
    budget.workers = vec![Worker {
        watched_ns: at,
        idle_ns: 400 * MS,
        serving: times,
        after: by_hand::times(&[]),
        between: by_hand::times(&[]),
        endpoints: vec![endpoint],
        ..worker
    }];
    let mut parts = vec![Lengths::default(); CallPart::ALL.len()];
    let mut set = |part: CallPart, count: u64, ns: u64, bucket: usize| {
        let lengths = &mut parts[part as usize];
        lengths.buckets.resize(64, 0);
        lengths.buckets[bucket] += count;
        lengths.ns += count * ns;
    };
    set(CallPart::Work, 5_200, 8_000, 9);
    set(CallPart::Flight, 5_200, 3_000, 7);
    set(CallPart::Woken, 5_200, 700, 2);
    set(CallPart::Running, 4_800, 4_000, 8);
    set(CallPart::Running, 400, 15 * MS, 31);
    (budget.calls[0].calls, budget.calls[0].parts) = (5_200, parts);
    budget.commands.truncate(1);
    (budget.commands[0].name, budget.commands[0].calls, budget.commands[0].ns) =
        ("GET".into(), 4_800, 4_800 * 30_000);
    budget.window_ns = at;
    (budget.cpus_ns, budget.steal_ns) = (2 * at, 0);
    budget.quota = Some(CpuQuota { quota_ns: 5 * MS, period_ns: 20 * MS });
    (budget.quota_periods, budget.throttled_periods, budget.throttled_ns) = (Some(420), 400, 5_900 * MS);
    budget.takers = vec![
        CpuTaker { ns: 5_800 * MS, ..CpuTaker::default() },
        CpuTaker { name: "nginx".into(), ns: 100 * MS, ..CpuTaker::default() },
    ];
    budget.lost_requests = 0;
    budget.requests = requests;
    recording.budget = Some(budget);
    recording
}

#[test]
fn a_sheet_in_every_form() {
    let recording = ill();
    let sheet = Sheet::of(&recording, None).unwrap();
    let schema = include_str!("../schema/slip.doctor-1.schema.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    let json = serde_json::from_slice(&render_sheet(&sheet, BudgetFormat::Json).unwrap()).unwrap();
    assert_eq!(support::schema::check(&schema, &schema, &json, "$"), [""; 0]);
    for (name, format) in
        [("table", BudgetFormat::Table), ("json", BudgetFormat::Json), ("md", BudgetFormat::Markdown)]
    {
        let text = String::from_utf8(render_sheet(&sheet, format).unwrap()).unwrap();
        insta::assert_snapshot!(format!("sheet_{name}"), text);
    }
}

#[test]
fn a_healthy_sheet_is_short_and_one_of_few_requests_says_so() {
    let text = |recording: &Recording| {
        let sheet = Sheet::of(recording, None).unwrap();
        String::from_utf8(render_sheet(&sheet, BudgetFormat::Table).unwrap()).unwrap()
    };
    let mut recording = ill();
    let budget = recording.budget.as_mut().unwrap();
    let healthy = by_hand::times(&[(slip_model::Part::Code, 20_000_000)]);
    budget.requests.iter_mut().for_each(|request| request.serving = healthy);
    (budget.calls, budget.commands, budget.workers[0].endpoints) = Default::default();
    insta::assert_snapshot!("sheet_healthy", text(&recording));
    recording.budget.as_mut().unwrap().requests.truncate(7);
    insta::assert_snapshot!("sheet_few", text(&recording));
}

#[test]
fn names_in_a_sheet_are_harmless() {
    let hostile = "\x1b[31m`|<b>\n\u{202e}";
    let mut recording = ill();
    recording.info.target = hostile.into();
    recording.processes[0].title = hostile.into();
    let budget = recording.budget.as_mut().unwrap();
    budget.rung = hostile.into();
    budget.endpoints[0].address = hostile.into();
    budget.commands[0].name = hostile.into();
    let sheet = Sheet::of(&recording, None).unwrap();
    for format in [BudgetFormat::Table, BudgetFormat::Markdown, BudgetFormat::Json] {
        let text = String::from_utf8(render_sheet(&sheet, format).unwrap()).unwrap();
        assert!(!text.contains(['\x1b', '\u{202e}']), "{text}");
        assert!(!text.contains("\n<b>"), "{text}");
    }
}

#[test]
fn a_rule_explains_itself() {
    let rule = slip_doctor::Rule::named("WAKE003").unwrap();
    insta::assert_snapshot!("rule", String::from_utf8(render_rule(rule)).unwrap());
    let all = String::from_utf8(render_rules()).unwrap();
    assert_eq!(all.lines().count(), slip_doctor::Rule::ALL.len());
}
