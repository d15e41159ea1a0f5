//! What the script draws, by column: names, the tree of stacks, its weights by thread, requests, and what is known of servers.
//!
//! Schema `slip.page/1`; the reader is `web/data.ts`.

use std::collections::HashMap;

use serde::Serialize;
use slip_doctor::{Sheet, call_part_name};
use slip_model::{FrameId, Recording};

use crate::budget::called;
use crate::fold::{self, Key};
use crate::spans::{self, Track};
use crate::stacks::{self, Stacks};
use crate::text::clean;
use crate::{Options, sheet};

use super::base::kinds;
use super::findings::line_of;
use super::requests::{self, Pieces, Requests};
use super::stacks::Tree;
use super::{Base, base::Kind};

/// Most commands of a server.
const MAX_COMMANDS: usize = 8;
/// Most programs that had the CPU.
const MAX_TAKERS: usize = 5;

#[derive(Debug, Serialize)]
pub(super) struct Data {
    schema: &'static str,
    interval_ns: u64,
    duration_ns: u64,
    kinds: Vec<KindText>,
    functions: Functions,
    nodes: Nodes,
    tracks: Vec<TrackText>,
    weights: Weights,
    /// How many requests that is of; 0 if that is not known.
    requests_ended: u64,
    base: Option<BaseData>,
    requests: Requests,
    pieces: Pieces,
    servers: Vec<Server>,
    worker_servers: Vec<WorkerServer>,
    takers: Vec<Taker>,
    findings: Vec<FindingText>,
    /// Whether segments of requests are lines of a budget, or else what samples and waits were of.
    has_budget: bool,
}

#[derive(Debug, Serialize)]
struct KindText {
    key: &'static str,
    name: &'static str,
    meaning: &'static str,
}

#[derive(Debug, Default, Serialize)]
struct Functions {
    name: Vec<String>,
    /// Index of `files`.
    file: Vec<u32>,
    files: Vec<String>,
    line: Vec<u32>,
    /// 0 marker, 1 Python, 2 PHP, 3 PHP's own, 4 the kernel, 5 native code.
    kind: Vec<u8>,
}

/// Node `n` is called by node `n - up`; those without a caller have 0.
#[derive(Debug, Default, Serialize)]
struct Nodes {
    up: Vec<u32>,
    function: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct TrackText {
    process: String,
    name: String,
    pid: u32,
    tid: u32,
}

/// Time by thread and innermost node, nanoseconds.
#[derive(Debug, Default, Serialize)]
struct Weights {
    track: Vec<u32>,
    node: Vec<u32>,
    on_ns: Vec<u64>,
    off_ns: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct BaseData {
    name: String,
    weights: Weights,
    requests_ended: u64,
}

#[derive(Debug, Serialize)]
struct Server {
    name: String,
    /// As [`FrameKind::Server`] has it.
    address: String,
    calls: u64,
    mean_ns: u64,
    parts: Vec<(&'static str, u64)>,
    commands: Vec<(String, u64, u64)>,
}

/// What a worker had to do with a server.
#[derive(Debug, Serialize)]
struct WorkerServer {
    track: u32,
    server: usize,
    calls: u64,
    connects: u64,
    connect_ns: u64,
    wait_ns: u64,
    wake_ns: u64,
}

#[derive(Debug, Serialize)]
struct Taker {
    name: String,
    is_worker: bool,
    ns: u64,
}

#[derive(Debug, Serialize)]
struct FindingText {
    rule: &'static str,
    /// Name of the line.
    line: Option<&'static str>,
    text: String,
}

impl Data {
    pub(super) fn of(
        recording: &Recording,
        sheet: Option<&Sheet>,
        base: Option<Base<'_>>,
        options: &Options,
    ) -> Self {
        let mut tree = Tree::default();
        let tracks = spans::tracks(recording);
        let functions_of = tree.functions_of(recording);
        let number = |frame: FrameId| functions_of[frame.index().min(functions_of.len() - 1)];
        let code_of = stacks::without_kernel(&recording.interner);
        let mut of_recording = Stacks::new(&recording.interner, &code_of, &number);
        let mut weights = weights(recording, &mut of_recording, options.include_idle);
        let (requests, mut pieces) =
            requests::of(recording, &tracks, &mut of_recording, options.include_idle);
        let numbers = tree.merge(&of_recording);
        weights.renumber(&numbers);
        pieces.renumber(&numbers);
        let base = base.map(|base| of_base(&mut tree, base, options.include_idle));
        Self {
            schema: "slip.page/1",
            interval_ns: recording.info.interval_ns.max(1),
            duration_ns: recording.totals.duration_ns,
            kinds: kinds().into_iter().map(KindText::of).collect(),
            functions: Functions::of(&tree),
            nodes: Nodes::of(&tree),
            weights,
            requests_ended: ended(recording),
            base,
            requests,
            pieces,
            servers: servers(recording, sheet),
            worker_servers: worker_servers(recording, &tracks),
            takers: takers(sheet),
            findings: sheet.map_or_else(Vec::new, findings),
            has_budget: recording.budget.is_some(),
            tracks: tracks.into_iter().map(TrackText::of).collect(),
        }
    }
}

/// Requests by which times are divided if two recordings are compared.
fn ended(recording: &Recording) -> u64 {
    recording
        .budget
        .as_ref()
        .map_or(0, |budget| (budget.requests.len() as u64).saturating_add(budget.lost_requests))
}

fn weights(recording: &Recording, stacks: &mut Stacks, include_idle: bool) -> Weights {
    let counts = fold::fold(recording, include_idle, |_, key| key);
    let mut counts: Vec<(Key, fold::Count)> = counts.into_iter().collect();
    counts.sort_unstable_by_key(|(key, _)| *key);
    let mut place_of: HashMap<(u32, u32), usize> = HashMap::new();
    let mut weights = Weights::default();
    for (key, count) in counts {
        let node = stacks.node(&key);
        let on_ns = count.on_cpu_ns.min(count.ns);
        let place = *place_of.entry((key.root, node)).or_insert(weights.node.len());
        if place == weights.node.len() {
            weights.track.push(key.root);
            weights.node.push(node);
            weights.on_ns.push(0);
            weights.off_ns.push(0);
        }
        weights.on_ns[place] = weights.on_ns[place].saturating_add(on_ns);
        weights.off_ns[place] = weights.off_ns[place].saturating_add(count.ns - on_ns);
    }
    weights
}

impl Weights {
    fn renumber(&mut self, numbers: &[u32]) {
        self.node.iter_mut().for_each(|node| *node = numbers[*node as usize]);
    }
}

fn of_base(tree: &mut Tree, base: Base<'_>, include_idle: bool) -> BaseData {
    let recording = base.recording;
    let functions_of = tree.functions_of(recording);
    let number = |frame: FrameId| functions_of[frame.index().min(functions_of.len() - 1)];
    let code_of = stacks::without_kernel(&recording.interner);
    let mut stacks = Stacks::new(&recording.interner, &code_of, &number);
    let mut weights = weights(recording, &mut stacks, include_idle);
    weights.renumber(&tree.merge(&stacks));
    BaseData { name: clean(base.name).into_owned(), weights, requests_ended: ended(recording) }
}

impl KindText {
    fn of(kind: Kind) -> Self {
        Self { key: kind.key(), name: kind.name(), meaning: kind.meaning() }
    }
}

impl Functions {
    fn of(tree: &Tree) -> Self {
        let mut functions = Self::default();
        let mut file_of: HashMap<&str, u32> = HashMap::new();
        for name in &tree.names {
            let files = &mut functions.files;
            let file = *file_of.entry(&name.file).or_insert_with(|| {
                files.push(name.file.clone());
                (files.len() - 1) as u32
            });
            functions.name.push(name.name.clone());
            functions.file.push(file);
            functions.line.push(name.line);
            functions.kind.push(name.kind);
        }
        functions
    }
}

impl Nodes {
    fn of(tree: &Tree) -> Self {
        let mut nodes = Self::default();
        for (number, (parent, function)) in (0_u32..).zip(&tree.nodes) {
            nodes.up.push(parent.map_or(0, |parent| number - parent));
            nodes.function.push(*function);
        }
        nodes
    }
}

impl TrackText {
    fn of(track: Track) -> Self {
        Self { process: track.process, name: track.name, pid: track.pid, tid: track.tid }
    }
}

fn servers(recording: &Recording, sheet: Option<&Sheet>) -> Vec<Server> {
    let Some(budget) = &recording.budget else { return Vec::new() };
    let calls = sheet.map_or(&[][..], |sheet| &sheet.table.calls);
    let of = |endpoint| {
        let name = clean(&called(endpoint)).into_owned();
        let address = clean(&endpoint.address).into_owned();
        let Some(times) = calls.iter().find(|times| times.endpoint == *endpoint) else {
            return Server { name, address, calls: 0, mean_ns: 0, parts: Vec::new(), commands: Vec::new() };
        };
        // What comes once for a connection is no part of a call.
        let of_calls = times.parts.iter().filter(|row| row.tenths.is_some());
        let parts = of_calls.map(|row| (call_part_name(row.part), row.spread.mean_ns)).collect();
        let commands = times.commands.iter().filter(|command| !command.name.is_empty()).take(MAX_COMMANDS);
        let commands = commands
            .map(|command| (clean(&command.name).into_owned(), command.calls, command.mean_ns))
            .collect();
        Server { name, address, calls: times.calls, mean_ns: times.mean_ns, parts, commands }
    };
    budget.endpoints.iter().map(of).collect()
}

fn worker_servers(recording: &Recording, tracks: &[Track]) -> Vec<WorkerServer> {
    let Some(budget) = &recording.budget else { return Vec::new() };
    let mut track_of: HashMap<(u32, u32), u32> = HashMap::new();
    for (number, track) in (0_u32..).zip(tracks) {
        track_of.entry((track.pid, track.tid)).or_insert(number);
    }
    let mut rows = Vec::new();
    for worker in &budget.workers {
        let Some(track) = track_of.get(&(worker.pid, worker.tid)) else { continue };
        for time in worker.endpoints.iter().filter(|time| (time.endpoint as usize) < budget.endpoints.len()) {
            rows.push(WorkerServer {
                track: *track,
                server: time.endpoint as usize,
                calls: time.calls,
                connects: time.connects,
                connect_ns: time.connect_ns,
                wait_ns: time.wait_ns.saturating_add(time.transfer_ns),
                wake_ns: time.wake_ns,
            });
        }
    }
    rows
}

fn takers(sheet: Option<&Sheet>) -> Vec<Taker> {
    let takers = sheet.into_iter().flat_map(|sheet| &sheet.table.takers).take(MAX_TAKERS);
    takers
        .map(|taker| Taker {
            name: clean(&taker.name).into_owned(),
            is_worker: taker.is_worker,
            ns: taker.ns,
        })
        .collect()
}

fn findings(sheet: &Sheet) -> Vec<FindingText> {
    let rows = sheet.findings.iter().map(|finding| FindingText {
        rule: finding.rule.id,
        line: line_of(finding.rule).map(slip_doctor::Line::name),
        text: sheet::plain_sentence(&finding.headline),
    });
    rows.collect()
}
