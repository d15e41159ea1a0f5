//! Recordings of allocations: bytes and blocks by place, and what of them is kept. There are no times.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use slip_model::{FrameKind, Recording, StackId, State};

use crate::Options;
use crate::collapsed;
use crate::fold::{FunctionTree, Key, MAX_DEPTH, Place};
use crate::summary::FunctionTable;
use crate::table::Table;
use crate::text::{bytes, clean, code, count, date, duration, place, share};

/// Most characters of a name and of a place.
const NAME: usize = 48;
const PLACE: usize = 40;

/// What was allocated in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Blocks that were told.
    pub(crate) samples: u64,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) kept_samples: u64,
    pub(crate) kept_objects: u64,
    pub(crate) kept_bytes: u64,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        for (to, from) in [
            (&mut self.samples, other.samples),
            (&mut self.objects, other.objects),
            (&mut self.bytes, other.bytes),
            (&mut self.kept_samples, other.kept_samples),
            (&mut self.kept_objects, other.kept_objects),
            (&mut self.kept_bytes, other.kept_bytes),
        ] {
            *to = to.saturating_add(from);
        }
    }
}

/// Adds up places by key. Their order makes no difference.
pub(crate) fn fold(recording: &Recording, mut refine: impl FnMut(Key) -> Key) -> HashMap<Key, Sums> {
    let mut sums: HashMap<Key, Sums> = HashMap::new();
    for allocated in &recording.allocations {
        if allocated.thread.index() >= recording.threads.len() {
            continue;
        }
        let key = Key {
            root: allocated.thread.0,
            stack: allocated.stack.0,
            place: if allocated.state.has(State::ENGINE) { Place::Engine } else { Place::Code },
            reason: None,
            truncated: allocated.stack.0 != 0 && allocated.state.has(State::TRUNCATED),
            extra: 0,
        };
        sums.entry(refine(key)).or_default().add(&Sums {
            samples: allocated.samples,
            objects: allocated.objects,
            bytes: allocated.bytes,
            kept_samples: allocated.kept_samples,
            kept_objects: allocated.kept_objects,
            kept_bytes: allocated.kept_bytes,
        });
    }
    sums
}

/// Collapsed stacks, in bytes.
pub(crate) fn collapsed(recording: &Recording, options: &Options) -> String {
    let interner = &recording.interner;
    let tree = FunctionTree::new(interner);
    let (roots, root_of) = collapsed::roots(recording, options.per_worker);
    let sums = fold(recording, |mut key| {
        key.root = root_of[key.root as usize];
        key.stack = tree.node(key.stack);
        key
    });
    let sums =
        sums.into_iter().map(|(key, sums)| (key, if options.kept { sums.kept_bytes } else { sums.bytes }));
    let lines = collapsed::lines(interner, &tree, &roots, sums);
    let mut text = String::new();
    for (line, sum) in lines.into_iter().filter(|(_, sum)| *sum > 0) {
        let _ = writeln!(text, "{line} {sum}");
    }
    text
}

/// What a function has allocated: itself, and with what it calls.
#[derive(Clone, Copy, Debug, Default)]
struct OfFunction {
    own: Sums,
    total: Sums,
}

/// For people.
pub(crate) fn markdown(recording: &Recording, options: &Options) -> String {
    let interner = &recording.interner;
    let mut table = FunctionTable::new(interner);
    let mut all = Sums::default();
    let (mut engine, mut nobody) = (Sums::default(), Sums::default());
    let mut functions: Vec<OfFunction> = Vec::new();
    let sums = fold(recording, |key| Key { root: 0, truncated: false, ..key });
    for (key, sums) in &sums {
        all.add(sums);
        let frames: Vec<usize> =
            interner.frames_of(StackId(key.stack)).take(MAX_DEPTH).map(|frame| table.index(frame)).collect();
        functions.resize(table.functions.len(), OfFunction::default());
        // As in tables of time: a request's engine is none of its functions.
        match frames.first() {
            _ if key.place == Place::Engine => engine.add(sums),
            Some(innermost) => functions[*innermost].own.add(sums),
            None => nobody.add(sums),
        }
        for function in frames.iter().collect::<BTreeSet<_>>() {
            functions[*function].total.add(sums);
        }
    }
    let mut order: Vec<usize> = (0..functions.len()).filter(|at| functions[*at].total.bytes > 0).collect();
    order.sort_by_cached_key(|at| {
        let function = &table.functions[*at];
        let OfFunction { own, total } = functions[*at];
        let name = (interner.text(function.name), interner.text(function.file), function.first_line);
        (Reverse(own.bytes), Reverse(total.bytes), name)
    });

    let mut text =
        headline(recording, &all, order.first().map(|at| (&table.functions[*at], functions[*at].own)));
    introduction(&mut text, recording, &all);
    if all.samples > 0 {
        let shown: Vec<usize> = order.iter().copied().take(options.top).collect();
        let _ = writeln!(
            text,
            "\n## Who allocates (100 % = {}), and what of it is kept (100 % = {})\n",
            bytes(all.bytes),
            bytes(all.kept_bytes)
        );
        let mut rows = Table::new(&[
            ">own",
            ">of all",
            ">±",
            ">blocks",
            ">with callees",
            ">kept",
            ">of kept",
            "function",
            "where",
        ]);
        let mut row = |sums: &Sums, total: Option<&Sums>, name: String, place: String| {
            rows.row([
                bytes(sums.bytes),
                share(sums.bytes, all.bytes),
                error(sums.samples, all.samples),
                count(sums.objects),
                total.map_or(String::new(), |total| share(total.bytes, all.bytes)),
                bytes(sums.kept_bytes),
                share(sums.kept_bytes, all.kept_bytes),
                name,
                place,
            ]);
        };
        for at in &shown {
            let function = &table.functions[*at];
            let name = code(interner.text(function.name), NAME, true);
            let file = interner.text(function.file);
            let of = match (function.kind, file) {
                (FrameKind::Marker, "") => String::new(),
                (_, "") => "the interpreter itself".to_owned(),
                _ => place(file, function.first_line, PLACE, true),
            };
            row(&functions[*at].own, Some(&functions[*at].total), name, of);
        }
        for (sums, name) in [
            (&engine, "engine: start-up, compilation and shutdown of requests, and between them"),
            (&nobody, "threads and moments without a function of the interpreter's"),
        ] {
            if sums.samples > 0 {
                row(sums, None, name.to_owned(), String::new());
            }
        }
        let mut rest = Sums::default();
        order.iter().skip(shown.len()).for_each(|at| rest.add(&functions[*at].own));
        if rest.samples > 0 {
            row(&rest, None, "all other functions".to_owned(), String::new());
        }
        rows.write(&mut text);
    }
    quality(&mut text, recording, options);
    text
}

fn headline(recording: &Recording, all: &Sums, first: Option<(&crate::summary::Function, Sums)>) -> String {
    let Some((function, own)) = first.filter(|_| all.samples > 0) else {
        return format!("No allocation was told of in {}.\n\n", duration(recording.totals.duration_ns));
    };
    let interner = &recording.interner;
    let name = code(interner.text(function.name), NAME, false);
    format!(
        "{name} allocated the most itself: {} of {} ({}), of which {} are kept.\n\n",
        bytes(own.bytes),
        bytes(all.bytes),
        share(own.bytes, all.bytes),
        bytes(own.kept_bytes)
    )
}

fn introduction(text: &mut String, recording: &Recording, all: &Sums) {
    let info = &recording.info;
    let _ = writeln!(
        text,
        "{} watched from {}: {} blocks were told of by chance, and stand for {} in {} blocks, of which {} in {} blocks were there at the \
         end, or when their process ended. Asked for: {}.",
        duration(recording.totals.duration_ns),
        date(info.started_unix_ns),
        count(all.samples),
        bytes(all.bytes),
        count(all.objects),
        bytes(all.kept_bytes),
        count(all.kept_objects),
        code(&info.target, 60, false),
    );
}

/// Two standard deviations of a share that so many of all samples have, in tenths of a percent.
fn error(samples: u64, all: u64) -> String {
    let share = samples as f64 / all.max(1) as f64;
    let deviation = (share * (1.0 - share) / all.max(1) as f64).sqrt();
    format!("{:.1}", 200.0 * deviation)
}

fn quality(text: &mut String, recording: &Recording, options: &Options) {
    let totals = &recording.totals;
    let _ = writeln!(text, "\n## How it was recorded, and what that cannot see\n");
    for note in &options.notes {
        let _ = writeln!(text, "- {}", clean(note));
    }
    if !totals.complete {
        let _ = writeln!(text, "- the recording was not closed in order: its end may be missing");
    }
    for (number, what) in [
        (totals.torn, "blocks whose stack could not be had: they are under `[unreadable]`"),
        (
            totals.failed,
            "reports of blocks were lost: what was allocated may be more, and what is kept less or more",
        ),
    ] {
        if number > 0 {
            let _ = writeln!(text, "- {} {what}", count(number));
        }
    }
    for sentence in &recording.info.cannot_see {
        let _ = writeln!(text, "- {}", clean(sentence));
    }
    let _ = writeln!(
        text,
        "- recorded by {} on {}; the recorder itself used {} of CPU",
        clean(&recording.info.tool),
        clean(&recording.info.host),
        duration(totals.own_cpu_ns)
    );
}
