//! pprof: gzip-compressed `profile.proto`, with lines, and with labels for process, thread and request.

use std::collections::HashMap;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;
use slip_model::{FrameId, FrameKind, Recording, StackId};

use crate::allocations;
use crate::fold::{self, Count, Element, KERNEL, Key, MAX_DEPTH};
use crate::proto::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
use crate::summary::{FunctionTable, RouteTable};
use crate::text::clean;
use crate::{Options, ReportError};

/// No route.
const NO_ROUTE: u32 = u32::MAX;
/// The first mapping; tools take its file name for that of the program.
const MAPPING: u64 = 1;
/// That of the kernel and its modules, if there are any of its frames.
const KERNEL_MAPPING: u64 = 2;

pub(crate) fn render(recording: &Recording, options: &Options) -> Result<Vec<u8>, ReportError> {
    let routes = RouteTable::new(&recording.requests);
    let counts = fold::fold(recording, options.include_idle, |piece, mut key| {
        let sample = &piece.sample;
        let route = routes.find(sample.request).filter(|_| sample.request.0 != 0);
        key.extra = route.and_then(|route| u32::try_from(route).ok()).unwrap_or(NO_ROUTE);
        key
    });
    let mut counts: Vec<(Key, Count)> = counts.into_iter().collect();
    counts.sort_unstable_by_key(|(key, _)| *key);

    let mut builder = Builder::new(recording);
    let labels = builder.thread_labels();
    let request_key = builder.string("request");
    let route_texts: Vec<i64> = routes
        .routes
        .iter()
        .map(|(method, uri)| {
            let text = format!("{} {}", recording.interner.text(*method), recording.interner.text(*uri));
            builder.string(text.trim())
        })
        .collect();
    for (key, count) in counts {
        let mut label = labels[key.root as usize].clone();
        // An empty text, which is string 0, would make it a label that is neither text nor number.
        if let Some(text) = route_texts.get(key.extra as usize).filter(|text| **text != 0) {
            label.push(Label { key: request_key, str: *text, num: 0 });
        }
        let location_id = builder.locations(&key);
        let value = [count.number, count.ns, count.on_cpu_ns].map(signed).to_vec();
        builder.profile.sample.push(Sample { location_id, value, label });
    }
    let types = [("samples", "count"), ("wall", "nanoseconds"), ("cpu", "nanoseconds")];
    let period = signed(recording.info.interval_ns);
    compress(&builder.finish(&types, 1, period, &options.notes))
}

/// Of a recording of allocations, with the types that heap profiles of Go have.
pub(crate) fn render_allocations(recording: &Recording, options: &Options) -> Result<Vec<u8>, ReportError> {
    let sums = allocations::fold(recording, |key| key);
    let mut sums: Vec<(Key, allocations::Sums)> = sums.into_iter().collect();
    sums.sort_unstable_by_key(|(key, _)| *key);
    let mut builder = Builder::new(recording);
    let labels = builder.thread_labels();
    for (key, sums) in sums {
        let label = labels[key.root as usize].clone();
        let location_id = builder.locations(&key);
        let value = [sums.objects, sums.bytes, sums.kept_objects, sums.kept_bytes].map(signed).to_vec();
        builder.profile.sample.push(Sample { location_id, value, label });
    }
    let types = [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ];
    // How far apart samples are is up to each process.
    compress(&builder.finish(&types, 1, 0, &options.notes))
}

fn compress(profile: &Profile) -> Result<Vec<u8>, ReportError> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&profile.encode_to_vec())?;
    Ok(gzip.finish()?)
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

struct Builder<'a> {
    recording: &'a Recording,
    functions: FunctionTable<'a>,
    profile: Profile,
    strings: HashMap<String, i64>,
    /// Location of each frame; 0 for none yet.
    location_of: Vec<u64>,
    marker_of: HashMap<&'static str, u64>,
    /// Number in the profile of each function of the table; 0 for none yet.
    function_of: Vec<u64>,
    has_kernel: bool,
}

impl<'a> Builder<'a> {
    fn new(recording: &'a Recording) -> Self {
        let mut builder = Self {
            recording,
            functions: FunctionTable::new(&recording.interner),
            profile: Profile::default(),
            strings: HashMap::new(),
            location_of: vec![0; recording.interner.sizes().1 + 1],
            marker_of: HashMap::new(),
            function_of: Vec::new(),
            has_kernel: false,
        };
        builder.string("");
        builder
    }

    fn string(&mut self, text: &str) -> i64 {
        let text = clean(text);
        if let Some(index) = self.strings.get(text.as_ref()) {
            return *index;
        }
        let index = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.clone().into_owned());
        self.strings.insert(text.into_owned(), index);
        index
    }

    /// The labels that all samples of a thread have.
    fn thread_labels(&mut self) -> Vec<Vec<Label>> {
        let recording = self.recording;
        let [process_key, pid_key, thread_key, tid_key, interpreter_key] =
            ["process", "pid", "thread", "tid", "interpreter"].map(|key| self.string(key));
        let number = |key, num| Label { key, str: 0, num };
        let mut labels = Vec::with_capacity(recording.threads.len());
        for thread in &recording.threads {
            let title = self.string(&fold::process_label(recording, thread));
            let pid = recording.processes.get(thread.process.0 as usize).map_or(0, |process| process.pid);
            let mut of_thread =
                vec![Label { key: process_key, str: title, num: 0 }, number(pid_key, pid.into())];
            let name = recording.interner.text(thread.name);
            if !name.is_empty() {
                let str = self.string(name);
                of_thread.push(Label { key: thread_key, str, num: 0 });
            }
            of_thread.push(number(tid_key, thread.tid.into()));
            if thread.interpreter != 0 {
                of_thread.push(number(interpreter_key, signed(thread.interpreter)));
            }
            labels.push(of_thread);
        }
        labels
    }

    /// The locations of a stack, innermost first.
    fn locations(&mut self, key: &Key) -> Vec<u64> {
        let interner = &self.recording.interner;
        let mut path: Vec<(FrameKind, FrameId)> = interner
            .frames_of(StackId(key.stack))
            .take(MAX_DEPTH)
            .map(|id| (interner.frame_at(id).kind, id))
            .collect();
        path.reverse();
        let elements: Vec<Element<FrameId>> = key.elements(path).collect();
        let location = |element: Element<FrameId>| match element {
            Element::Frame(frame) => self.location(frame),
            Element::Marker(marker) => self.marker(marker),
        };
        elements.into_iter().rev().map(location).collect()
    }

    fn location(&mut self, id: FrameId) -> u64 {
        let slot = id.index().min(self.location_of.len() - 1);
        if self.location_of[slot] == 0 {
            let number = self.functions.index(id);
            if self.function_of.len() <= number {
                self.function_of.resize(number + 1, 0);
            }
            if self.function_of[number] == 0 {
                let function = self.functions.functions[number];
                let interner = &self.recording.interner;
                let name = match interner.text(function.name) {
                    "" => "[unnamed]",
                    name => name,
                };
                let file = match (function.kind, interner.text(function.file)) {
                    (FrameKind::Kernel, "") => KERNEL,
                    (_, file) => file,
                };
                self.function_of[number] = self.function(name, file, function.first_line);
            }
            let frame = self.recording.interner.frame_at(id);
            let is_kernel = frame.kind == FrameKind::Kernel;
            self.has_kernel |= is_kernel;
            let mapping = if is_kernel { KERNEL_MAPPING } else { MAPPING };
            self.location_of[slot] = self.add_location(mapping, self.function_of[number], frame.line);
        }
        self.location_of[slot]
    }

    fn marker(&mut self, name: &'static str) -> u64 {
        if let Some(id) = self.marker_of.get(name) {
            return *id;
        }
        let function = self.function(name, "", 0);
        let id = self.add_location(MAPPING, function, 0);
        self.marker_of.insert(name, id);
        id
    }

    fn function(&mut self, name: &str, file: &str, first_line: u32) -> u64 {
        let (name, filename) = (self.string(name), self.string(file));
        let id = self.profile.function.len() as u64 + 1;
        let start_line = first_line.into();
        self.profile.function.push(Function { id, name, system_name: name, filename, start_line });
        id
    }

    fn add_location(&mut self, mapping_id: u64, function_id: u64, line: u32) -> u64 {
        let id = self.profile.location.len() as u64 + 1;
        let line = vec![Line { function_id, line: line.into() }];
        self.profile.location.push(Location { id, mapping_id, line });
        id
    }

    /// `types` are those of values, with their units; `main` is the number of the one that is shown first, and by which samples are taken.
    fn finish(mut self, types: &[(&str, &str)], main: usize, period: i64, notes: &[String]) -> Profile {
        let info = &self.recording.info;
        let types: Vec<ValueType> = types
            .iter()
            .map(|(r#type, unit)| ValueType { r#type: self.string(r#type), unit: self.string(unit) })
            .collect();
        self.profile.period_type = types.get(main).copied();
        self.profile.default_sample_type = types.get(main).map_or(0, |main| main.r#type);
        self.profile.sample_type = types;
        self.profile.period = period;
        self.profile.time_nanos = signed(info.started_unix_ns);
        self.profile.duration_nanos = signed(self.recording.totals.duration_ns);
        let mapping = |id, filename, has_lines| Mapping {
            id,
            filename,
            has_functions: true,
            has_filenames: has_lines,
            has_line_numbers: has_lines,
        };
        self.profile.mapping = vec![mapping(MAPPING, self.string(&info.target), true)];
        if self.has_kernel {
            let kernel = self.string(KERNEL);
            self.profile.mapping.push(mapping(KERNEL_MAPPING, kernel, false));
        }
        let tool = format!("{}, sampler {}", info.tool, info.sampler);
        let blind = info.cannot_see.iter().map(|what| format!("cannot see: {what}"));
        let comments: Vec<String> = [tool].into_iter().chain(blind).chain(notes.iter().cloned()).collect();
        self.profile.comment = comments.iter().map(|comment| self.string(comment)).collect();
        self.profile
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::io::Read as _;

    use super::*;
    use crate::support::{both_languages, kernel_frames, samples_and_waits};

    fn decode(bytes: &[u8]) -> Profile {
        let mut profile = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut profile).unwrap();
        Profile::decode(&profile[..]).unwrap()
    }

    #[test]
    fn a_request_without_uri_is_called_by_its_script_and_one_without_both_has_no_label() {
        for (script, expected) in [("/srv/run.php", Some("/srv/run.php")), ("", None)] {
            let mut recording = both_languages();
            let script = recording.interner.string(script);
            for request in &mut recording.requests {
                *request = slip_model::Request { id: request.id, script, ..Default::default() };
            }
            let profile = decode(&render(&recording, &Options::default()).unwrap());
            let labels: Vec<Label> = profile.sample.iter().flat_map(|sample| sample.label.clone()).collect();
            assert!(labels.iter().all(|label| label.str != 0 || label.num != 0));
            let text = |at: i64| profile.string_table[at as usize].as_str();
            let request = labels.iter().find(|label| text(label.key) == "request");
            assert_eq!(request.map(|label| text(label.str)), expected);
        }
    }

    #[test]
    fn waits_have_their_number_their_time_and_their_reason() {
        let profile = decode(&render(&samples_and_waits(), &Options::default()).unwrap());
        let name = |location: u64| {
            let line = &profile.location[location as usize - 1].line[0];
            let function = &profile.function[line.function_id as usize - 1];
            profile.string_table[function.name as usize].as_str()
        };
        let with = |names: &[&str]| {
            let found = profile.sample.iter().filter(|sample| {
                let of_sample = sample.location_id.iter().map(|location| name(*location));
                of_sample.take(names.len()).eq(names.iter().copied())
            });
            found.map(|sample| sample.value.clone()).collect::<Vec<_>>()
        };
        let (query, find) = ("mysqli_query", "App\\Repo::find");
        assert_eq!(with(&["[waits: socket]", query, find]), [[900, 130_000_000, 0]]);
        assert_eq!(with(&["[ready]", query]), [[7, 3_000_000, 3_000_000]]);
        assert_eq!(with(&[query, find]), [[2, 20_000_000, 20_000_000]]);
        assert_eq!(with(&["[waits: file]", "[engine]"]), [[1, 2_000_000, 0]]);
        let ns: i64 = profile.sample.iter().map(|sample| sample.value[1]).sum();
        assert_eq!(ns, 15 * 10_000_000 + 190_400_700);
    }

    #[test]
    fn the_kernel_is_another_mapping_and_what_is_instead_of_code_calls_it() {
        let profile = decode(&render(&kernel_frames(), &Options::default()).unwrap());
        let text = |at: i64| profile.string_table[at as usize].as_str();
        let mappings: Vec<_> = profile.mapping.iter().map(|mapping| text(mapping.filename)).collect();
        assert_eq!(mappings, ["--fpm www --pid 4711", KERNEL]);
        let frame = |location: &u64| {
            let location = &profile.location[*location as usize - 1];
            let function = &profile.function[location.line[0].function_id as usize - 1];
            (location.mapping_id, text(function.name), text(function.filename))
        };
        let engine: Vec<_> = profile
            .sample
            .iter()
            .map(|sample| sample.location_id.iter().map(frame).collect::<Vec<_>>())
            .find(|stack| stack.contains(&(MAPPING, "[engine]", "")))
            .unwrap();
        assert_eq!(engine.last(), Some(&(MAPPING, "[engine]", "")));
        assert_eq!(engine[engine.len() - 2], (KERNEL_MAPPING, "asm_exc_page_fault", KERNEL));
        let functions: Vec<_> =
            profile.function.iter().map(|function| (text(function.name), text(function.filename))).collect();
        assert!(functions.contains(&("nft_do_chain", "[nf_tables]")), "{functions:?}");
    }

    #[test]
    fn profile() {
        let options = Options { include_idle: true, ..Options::default() };
        let profile = decode(&render(&both_languages(), &options).unwrap());
        let text = |at: i64| format!("{:?}", profile.string_table[at as usize]);
        let mut dump = String::new();
        for kind in &profile.sample_type {
            let _ = writeln!(dump, "type {} in {}", text(kind.r#type), text(kind.unit));
        }
        let period = profile.period_type.unwrap();
        let _ = writeln!(dump, "period {} {} {}", profile.period, text(period.r#type), text(period.unit));
        let _ = writeln!(dump, "default {}", text(profile.default_sample_type));
        let _ = writeln!(dump, "time {} for {}", profile.time_nanos, profile.duration_nanos);
        for comment in &profile.comment {
            let _ = writeln!(dump, "comment {}", text(*comment));
        }
        let _ = writeln!(dump, "mapping {:?} {}", profile.mapping, text(profile.mapping[0].filename));
        for function in &profile.function {
            let (name, file) = (text(function.name), text(function.filename));
            let _ = writeln!(dump, "function {} {name} {file}:{}", function.id, function.start_line);
        }
        for location in &profile.location {
            let line = location.line[0];
            let _ = writeln!(dump, "location {} function {}:{}", location.id, line.function_id, line.line);
        }
        for sample in &profile.sample {
            let labels: Vec<String> = sample
                .label
                .iter()
                .map(|label| {
                    let value = if label.str == 0 { label.num.to_string() } else { text(label.str) };
                    format!("{}={value}", text(label.key))
                })
                .collect();
            let _ = writeln!(dump, "{:?} at {:?} {}", sample.value, sample.location_id, labels.join(" "));
        }
        insta::assert_snapshot!(dump);
    }
}
