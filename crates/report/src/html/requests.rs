//! Requests with what each was spent on, and the samples and waits that are known to be of it.

use std::collections::HashMap;

use serde::Serialize;
use slip_doctor::Line;
use slip_model::{Part, Recording, RequestId, ServedRequest, State, WaitReason};

use crate::fold::{Key, Place};
use crate::piece::{Piece, pieces};
use crate::spans::{self, Span, Track, What};
use crate::stacks::Stacks;

use super::base::{Kind, number};

/// Most samples and waits that the page has one by one: some 8 MB. Of more, those that are equal within a request are one.
const MAX_PIECES: usize = 200_000;

/// Requests by column, in the order of their begin.
#[derive(Debug, Default, Serialize)]
pub(super) struct Requests {
    track: Vec<u32>,
    begin_ns: Vec<u64>,
    end_ns: Vec<u64>,
    /// What it is: an index of texts, 0 if that is not known.
    text: Vec<u32>,
    texts: Vec<String>,
    /// Where its segments begin, and behind the last where all end.
    first: Vec<u32>,
    /// What each segment is of, and how long.
    kind: Vec<u32>,
    ns: Vec<u64>,
    /// Those that shared their worker, of which nothing more is known.
    shared: Vec<u32>,
}

/// Samples and waits by column, by track and time.
#[derive(Debug, Default, Serialize)]
pub(super) struct Pieces {
    track: Vec<u32>,
    /// Begin: of waits, as if they had been one that ended when they were added up.
    start_ns: Vec<u64>,
    ns: Vec<u64>,
    node: Vec<u32>,
    kind: Vec<u32>,
    count: Vec<u64>,
    /// The request that it is of, plus 1; 0 if that is not known.
    request: Vec<u32>,
    /// Waits begin here; before are samples.
    waits_from: usize,
    /// They stand for all of a request that are equal, and their times say nothing.
    joined: bool,
    /// So many of the shortest are left out.
    left_out: usize,
}

/// One of them. Node is of `Stacks`.
struct Found {
    track: u32,
    is_wait: bool,
    start_ns: u64,
    ns: u64,
    node: u32,
    kind: u32,
    count: u64,
    request: u32,
}

/// Which request each number of the sampler is.
struct Numbers {
    /// By number of the sampler: index of the request, plus 1.
    of_sampler: HashMap<RequestId, u32>,
    /// By track: begin, end and index plus 1 of requests that had their worker for themselves, by begin.
    by_track: HashMap<u32, Vec<(u64, u64, u32)>>,
}

pub(super) fn of(
    recording: &Recording,
    tracks: &[Track],
    stacks: &mut Stacks,
    include_idle: bool,
) -> (Requests, Pieces) {
    let spans = spans::spans(recording, tracks, include_idle);
    let mut spans: Vec<&Span> = spans.iter().filter(|span| !matches!(span.what, What::Waits(..))).collect();
    spans.sort_by_key(|span| (span.start_ns, span.track, span.end_ns));
    let numbers = Numbers::of(recording, tracks, &spans);
    let (found, joined, left_out) = found(recording, stacks, include_idle, &numbers);
    let requests = requests(recording, &spans, &numbers, &found);
    let mut pieces = Pieces { joined, left_out, ..Pieces::default() };
    pieces.waits_from = found.iter().take_while(|piece| !piece.is_wait).count();
    for piece in found {
        pieces.track.push(piece.track);
        pieces.start_ns.push(piece.start_ns);
        pieces.ns.push(piece.ns);
        pieces.node.push(piece.node);
        pieces.kind.push(piece.kind);
        pieces.count.push(piece.count);
        pieces.request.push(piece.request);
    }
    (requests, pieces)
}

impl Pieces {
    /// Puts in the place of each node what `numbers` has for it.
    pub(super) fn renumber(&mut self, numbers: &[u32]) {
        self.node.iter_mut().for_each(|node| *node = numbers[*node as usize]);
    }
}

impl Numbers {
    fn of(recording: &Recording, tracks: &[Track], spans: &[&Span]) -> Self {
        let mut numbers = Self { of_sampler: HashMap::new(), by_track: HashMap::new() };
        let mut shared: Vec<u32> = Vec::new();
        for (index, span) in (1_u32..).zip(spans) {
            match span.what {
                What::Seen(request) => {
                    numbers.of_sampler.insert(request.id, index);
                }
                What::Served(request) if is_shared(request) => shared.push(span.track as u32),
                _ => {
                    let of_track = numbers.by_track.entry(span.track as u32).or_default();
                    of_track.push((span.start_ns, span.end_ns, index));
                }
            }
        }
        // What was seen while a worker had several requests is of none in particular.
        for track in shared {
            numbers.by_track.remove(&track);
        }
        if recording.budget.is_none() {
            numbers.by_track.clear();
            return numbers;
        }
        // The sampler and the budget number requests by themselves: the same worker has the same one at the same time.
        let mut tracks_of: HashMap<u32, Vec<u32>> = HashMap::new();
        for (track, thread) in (0_u32..).zip(&recording.threads) {
            if tracks.get(track as usize).is_some_and(|track| track.is_main) {
                tracks_of.entry(thread.process.0).or_default().push(track);
            }
        }
        for request in &recording.requests {
            let middle_ns = request.first_ns.midpoint(request.last_ns);
            let served = tracks_of.get(&request.process.0).into_iter().flatten();
            if let Some(index) = served.filter_map(|track| numbers.at(*track, middle_ns)).next() {
                numbers.of_sampler.insert(request.id, index);
            }
        }
        numbers
    }

    /// The request that this worker has at a moment.
    fn at(&self, track: u32, time_ns: u64) -> Option<u32> {
        let requests = self.by_track.get(&track)?;
        let before = requests.partition_point(|(begin_ns, _, _)| *begin_ns <= time_ns);
        let (_, end_ns, index) = requests.get(before.checked_sub(1)?)?;
        (time_ns <= *end_ns).then_some(*index)
    }

    /// That of a piece. When waits began and ended is not known exactly, so that they have it by their number alone.
    fn of_piece(&self, piece: &Piece) -> u32 {
        let sample = &piece.sample;
        let known = self.of_sampler.get(&sample.request).copied().filter(|_| sample.request.0 != 0);
        let by_time = || {
            let is_sample = piece.reason.is_none() && sample.request.0 == 0 && !sample.state.has(State::IDLE);
            is_sample.then(|| self.at(sample.thread.0, sample.time_ns)).flatten()
        };
        known.or_else(by_time).unwrap_or(0)
    }
}

fn is_shared(request: &ServedRequest) -> bool {
    request.end_ns > request.begin_ns && request.serving.total_ns() == 0 && request.after.total_ns() == 0
}

/// What a piece was spent on, as far as it tells by itself.
fn kind(piece: &Piece) -> Kind {
    let state = piece.sample.state;
    match piece.reason {
        _ if state.has(State::IDLE) => Kind::Line(Line::Idle),
        Some(reason) => Kind::Waits(reason),
        None if state.has(State::ENGINE) => Kind::Engine,
        None if state.has(State::CPU_UNKNOWN) => Kind::NotTold,
        None if state.has(State::ON_CPU) => Kind::OnCpu,
        None => Kind::OffCpu,
    }
}

/// Samples, then waits, by track and time; whether they were joined; and how many are left out.
fn found(
    recording: &Recording,
    stacks: &mut Stacks,
    include_idle: bool,
    numbers: &Numbers,
) -> (Vec<Found>, bool, usize) {
    let mut all: Vec<Found> = Vec::new();
    let mut place_of: HashMap<(u32, bool, u32, u32, u32), usize> = HashMap::new();
    let many =
        recording.blocks.iter().map(slip_model::SampleBlock::len).sum::<usize>() + recording.waits.len();
    let joined = many > MAX_PIECES;
    for piece in pieces(recording) {
        let track = piece.sample.thread.0;
        if track as usize >= recording.threads.len() {
            continue;
        }
        let Some(key) = Key::of(&piece, include_idle) else { continue };
        let found = Found {
            track,
            is_wait: piece.reason.is_some(),
            start_ns: match piece.reason {
                Some(_) => piece.sample.time_ns.saturating_sub(piece.ns),
                None => piece.sample.time_ns,
            },
            ns: piece.ns,
            node: stacks.node(&key),
            kind: number(if key.place == Place::Idle { Kind::Line(Line::Idle) } else { kind(&piece) }),
            count: piece.count,
            request: numbers.of_piece(&piece),
        };
        if !joined {
            all.push(found);
            continue;
        }
        let same = (found.track, found.is_wait, found.node, found.kind, found.request);
        let place = *place_of.entry(same).or_insert(all.len());
        match all.get_mut(place) {
            Some(known) => {
                known.ns = known.ns.saturating_add(found.ns);
                known.count = known.count.saturating_add(found.count);
            }
            None => all.push(found),
        }
    }
    let left_out = all.len().saturating_sub(MAX_PIECES);
    if left_out > 0 {
        all.sort_by_key(|piece| std::cmp::Reverse(piece.ns));
        all.truncate(MAX_PIECES);
    }
    all.sort_by_key(|piece| (piece.is_wait, piece.track, piece.start_ns));
    (all, joined, left_out)
}

fn requests(recording: &Recording, spans: &[&Span], numbers: &Numbers, found: &[Found]) -> Requests {
    let mut requests = Requests { texts: vec![String::new()], first: vec![0], ..Requests::default() };
    let mut text_of: HashMap<String, u32> = HashMap::new();
    let mut texts = vec![0_u32; spans.len()];
    for request in &recording.requests {
        if let Some(index) = numbers.of_sampler.get(&request.id) {
            let text = spans::request_text(recording, request);
            let all = &mut requests.texts;
            texts[*index as usize - 1] = *text_of.entry(text.clone()).or_insert_with(|| {
                all.push(text);
                (all.len() - 1) as u32
            });
        }
    }
    // Without a budget a request is what was seen of it.
    let mut seen: HashMap<u32, [u64; KINDS]> = HashMap::new();
    if recording.budget.is_none() {
        for piece in found.iter().filter(|piece| piece.request != 0) {
            let ns = &mut seen.entry(piece.request).or_insert([0; KINDS])[piece.kind as usize];
            *ns = ns.saturating_add(piece.ns);
        }
    }
    for (at, span) in spans.iter().enumerate() {
        let mut segments: Vec<(u32, u64)> = Vec::new();
        let length_ns = span.end_ns - span.start_ns;
        match span.what {
            What::Served(request) if is_shared(request) => {
                requests.shared.push(at as u32);
                segments.push((
                    number(Kind::Line(Line::Queue)),
                    request.begin_ns.saturating_sub(request.queued_ns),
                ));
                segments.push((number(Kind::Line(Line::Unknown)), length_ns));
            }
            What::Served(request) => segments.extend(lines(request, length_ns)),
            What::Seen(_) | What::Waits(..) => {
                let of = seen.get(&(at as u32 + 1)).copied().unwrap_or([0; KINDS]);
                let sum = of.iter().fold(0_u64, |sum, ns| sum.saturating_add(*ns));
                segments.extend((0_u32..).zip(of));
                segments.push((number(Kind::NotSeen), length_ns.saturating_sub(sum)));
            }
        }
        requests.track.push(span.track as u32);
        requests.begin_ns.push(span.start_ns);
        requests.end_ns.push(span.end_ns);
        requests.text.push(texts[at]);
        for (kind, ns) in segments.into_iter().filter(|(_, ns)| *ns > 0) {
            requests.kind.push(kind);
            requests.ns.push(ns);
        }
        requests.first.push(requests.kind.len() as u32);
    }
    requests
}

/// So many there are of [`Kind`].
const KINDS: usize = Line::ALL.len() + WaitReason::ALL.len() + 5;

/// The lines of a request in the order of tables, which is not that of time.
fn lines(request: &ServedRequest, length_ns: u64) -> Vec<(u32, u64)> {
    let mut sums = [0_u64; Line::ALL.len()];
    for part in Part::ALL {
        let sum = &mut sums[Line::of(part) as usize];
        *sum = sum.saturating_add(request.serving.of(part));
    }
    sums[Line::Queue as usize] = request.begin_ns.saturating_sub(request.queued_ns);
    sums[Line::After as usize] = request.after.total_ns();
    let known = request.serving.total_ns().saturating_add(request.after.total_ns());
    sums[Line::Unknown as usize] = length_ns.saturating_sub(known);
    Line::ALL.into_iter().zip(sums).map(|(line, ns)| (number(Kind::Line(line)), ns)).collect()
}
