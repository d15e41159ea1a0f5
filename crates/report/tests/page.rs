//! The page: whole, harmless, and with the same sums as all other formats. What it looks like and how it is used: `web/tests/use.py`.
#![allow(clippy::unwrap_used, reason = "test code")]

#[path = "../../doctor/tests/support/budget.rs"]
mod by_hand;
mod support;

use std::collections::BTreeMap;

use slip_model::{Recording, RequestId, Sample, SampleBlock, StackId, State, ThreadId};
use slip_report::{Base, Format, Options, render, render_page};
use support::{both_languages, html, kernel_frames, samples_and_waits};

fn page(recording: &Recording) -> Vec<u8> {
    render(recording, Format::Html, &Options { include_idle: true, ..Options::default() }).unwrap()
}

fn with_budget() -> Recording {
    let mut recording = both_languages();
    recording.budget = Some(by_hand::budget());
    recording
}

#[test]
fn each_stack_has_the_time_that_speedscope_gives_it() {
    for recording in [both_languages(), samples_and_waits(), kernel_frames(), with_budget()] {
        let options = Options { include_idle: true, ..Options::default() };
        let json = render(&recording, Format::Speedscope, &options).unwrap();
        let speedscope: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let frames = speedscope["shared"]["frames"].as_array().unwrap();
        let all = &speedscope["profiles"][0];
        let mut expected: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        for (stack, weight) in
            all["samples"].as_array().unwrap().iter().zip(all["weights"].as_array().unwrap())
        {
            let name = |frame: &serde_json::Value| {
                frames[frame.as_u64().unwrap() as usize]["name"].as_str().unwrap().to_owned()
            };
            let stack = stack.as_array().unwrap().iter().map(name).collect();
            *expected.entry(stack).or_default() += weight.as_u64().unwrap();
        }
        let data = html::read(&page(&recording));
        let mut found: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        for at in 0..data.weights.node.len() {
            let ns = data.weights.on_ns[at] + data.weights.off_ns[at];
            *found.entry(data.stack(data.weights.node[at])).or_default() += ns;
        }
        assert_eq!(found, expected);
        // Samples and waits one by one are the same time again.
        assert_eq!(data.pieces.ns.iter().sum::<u64>(), data.weights.total_ns().0);
        assert!(data.pieces.waits_from <= data.pieces.ns.len());
        assert!(data.pieces.node.iter().all(|node| *node < data.nodes.function.len()));
    }
}

#[test]
fn parts_of_a_request_are_all_of_its_time_and_its_queue() {
    let recording = with_budget();
    let data = html::read(&page(&recording));
    let requests = &data.requests;
    let mut budget = recording.budget.unwrap().requests;
    budget.sort_by_key(|request| (request.begin_ns, request.worker, request.end_ns));
    assert_eq!(requests.begin_ns.len(), budget.len());
    for (at, request) in budget.iter().enumerate() {
        assert_eq!((requests.begin_ns[at], requests.end_ns[at]), (request.begin_ns, request.end_ns));
        let parts = requests.first[at]..requests.first[at + 1];
        let sum: u64 = requests.ns[parts.clone()].iter().sum();
        assert_eq!(sum, request.end_ns - request.queued_ns, "{request:?}");
        let names: Vec<&str> = requests.kind[parts].iter().map(|kind| &*data.kinds[*kind].name).collect();
        assert!(requests.shared.contains(&at) || !names.contains(&"UNKNOWN"), "{names:?}");
    }
}

#[test]
fn requests_without_a_budget_have_what_samples_saw() {
    let recording = samples_and_waits();
    let data = html::read(&page(&recording));
    let requests = &data.requests;
    assert_eq!(requests.begin_ns.len(), recording.requests.len());
    let texts: Vec<&str> = requests.text.iter().map(|text| &*requests.texts[*text]).collect();
    assert!(texts.iter().all(|text| text.starts_with("GET /") || text.starts_with("POST /")), "{texts:?}");
    for at in 0..requests.begin_ns.len() {
        let parts = requests.first[at]..requests.first[at + 1];
        let seen: u64 = parts
            .clone()
            .filter(|part| data.kinds[requests.kind[*part]].name != "not seen")
            .map(|part| requests.ns[part])
            .sum();
        let pieces = (0..data.pieces.ns.len()).filter(|piece| data.pieces.request[*piece] == at + 1);
        assert_eq!(seen, pieces.map(|piece| data.pieces.ns[piece]).sum::<u64>());
    }
    let keys: Vec<&str> = data.pieces.kind.iter().map(|kind| &*data.kinds[*kind].key).collect();
    assert!(keys.contains(&"code") && keys.contains(&"wait"));
}

#[test]
fn two_recordings_are_one_tree_with_two_weights() {
    let (recording, earlier) = (samples_and_waits(), both_languages());
    let base = Base { recording: &earlier, name: "be<fore.slip" };
    let options = Options { include_idle: true, ..Options::default() };
    let bytes = render_page(&recording, Some(base), &options).unwrap();
    let data = html::read(&bytes);
    let base = data.base.as_ref().unwrap();
    assert_eq!(base.name, "be<fore.slip");
    assert_eq!(data.weights.total_ns(), html::read(&page(&recording)).weights.total_ns());
    assert_eq!(base.weights.total_ns(), html::read(&page(&earlier)).weights.total_ns());
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.contains("Compared with be&lt;fore.slip") && !text.contains("be<fore"));
}

#[test]
fn a_recording_with_a_budget_says_where_a_request_goes_and_one_without_says_so() {
    let text = |recording: &Recording| String::from_utf8(page(recording)).unwrap();
    let with = text(&with_budget());
    assert!(with.contains("Where a request goes") && with.contains("All time of the workers"));
    let without = text(&both_languages());
    assert!(without.contains("This recording has no budget") && without.contains("slip record --budget"));
    // Nothing to be seen is no error.
    assert!(text(&Recording::default()).contains("no samples of busy threads"));
}

#[test]
fn the_page_asks_for_nothing() {
    let text = String::from_utf8(page(&with_budget())).unwrap();
    let (_, rest) = text.split_once("http-equiv=\"Content-Security-Policy\" content=\"").unwrap();
    let (policy, _) = rest.split_once('"').unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains("http") && !policy.contains('*'), "{policy}");
    for what in [
        " src=",
        "<link",
        "@import",
        "url(",
        "<img",
        "<iframe",
        "fetch(",
        "XMLHttpRequest",
        "innerHTML",
        "eval(",
    ] {
        assert!(!text.contains(what), "{what}");
    }
    // Style that stands in an element is refused by the policy.
    assert!(!text.contains(" style="));
}

#[test]
fn names_are_text_and_never_markup() {
    let hostile = "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)>\"'&\x1b[31m\u{202e}";
    let mut recording = samples_and_waits();
    recording.budget = Some(by_hand::budget());
    recording.info.target = hostile.into();
    recording.info.host = hostile.into();
    recording.info.sampler = hostile.into();
    recording.info.tool = hostile.into();
    recording.info.cannot_see = vec![hostile.into()];
    recording.processes.iter_mut().for_each(|process| {
        process.title = hostile.into();
        process.version = hostile.into();
    });
    let name = recording.interner.string(hostile);
    recording.threads[0].name = name;
    recording.requests.iter_mut().for_each(|request| request.uri = name);
    let frame = recording.interner.frame(slip_model::Frame { name, file: name, ..Default::default() });
    let stack = recording.interner.push(StackId(0), frame);
    let mut block = SampleBlock::default();
    block.push(Sample {
        stack,
        thread: ThreadId(0),
        request: RequestId(1),
        state: State::ON_CPU,
        ..Sample::default()
    });
    recording.blocks.push(block);
    let budget = recording.budget.as_mut().unwrap();
    budget.cannot_see = vec![hostile.into()];
    budget.workers.iter_mut().for_each(|worker| worker.title = hostile.into());
    budget.endpoints.iter_mut().for_each(|endpoint| endpoint.address = hostile.into());
    budget.takers.iter_mut().for_each(|taker| taker.name = hostile.into());
    let options = Options { notes: vec![hostile.into()], ..Options::default() };
    let base = Base { recording: &recording, name: hostile };
    let text = String::from_utf8(render_page(&recording, Some(base), &options).unwrap()).unwrap();
    assert!(!text.contains(['\x1b', '\u{202e}']));
    assert!(!text.contains("<img") && !text.contains("<!--") && !text.contains("alert(1)</script"));
    // The two of the page itself.
    assert_eq!((text.matches("<script").count(), text.matches("</script").count()), (2, 2));
    assert!(
        html::read(text.as_bytes())
            .functions
            .name
            .iter()
            .any(|name| name.contains("</script><script>alert(1)"))
    );
}
