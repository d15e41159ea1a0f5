//! A strict reader of processed profiles, version 55: every column that the profiler's types ask for, and no other.

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Profile {
    pub(crate) meta: Meta,
    libs: [(); 0],
    pub(crate) threads: Vec<Thread>,
    pages: [(); 0],
    profiler_overhead: [(); 0],
    counters: [(); 0],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Meta {
    categories: Vec<Category>,
    debug: bool,
    extensions: Value,
    interval: f64,
    preprocessed_profile_version: u32,
    process_type: u32,
    product: String,
    oscpu: String,
    sample_units: Value,
    start_time: f64,
    symbolicated: bool,
    paused_ranges: [(); 0],
    version: u32,
    uses_only_one_stack_type: bool,
    source_code_is_not_on_searchfox: bool,
    marker_schema: Vec<Schema>,
    extra: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Category {
    name: String,
    color: String,
    subcategories: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Schema {
    name: String,
    display: Vec<String>,
    chart_label: String,
    tooltip_label: String,
    table_label: String,
    description: String,
    fields: Vec<Field>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Field {
    key: String,
    label: String,
    format: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Thread {
    pub(crate) name: String,
    is_main_thread: bool,
    process_type: String,
    pub(crate) process_name: String,
    pid: String,
    tid: u64,
    process_startup_time: f64,
    process_shutdown_time: Option<f64>,
    register_time: f64,
    unregister_time: Option<f64>,
    paused_ranges: [(); 0],
    show_markers_in_timeline: bool,
    pub(crate) samples: Samples,
    pub(crate) markers: Markers,
    frame_table: FrameTable,
    func_table: FuncTable,
    stack_table: StackTable,
    native_symbols: NoSymbols,
    resource_table: NoResources,
    string_array: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Samples {
    length: usize,
    weight_type: String,
    pub(crate) stack: Vec<Option<usize>>,
    time: Vec<f64>,
    weight: Vec<f64>,
    #[serde(rename = "threadCPUDelta")]
    thread_cpu_delta: Vec<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Markers {
    pub(crate) length: usize,
    category: Vec<usize>,
    pub(crate) data: Vec<serde_json::Map<String, Value>>,
    pub(crate) start_time: Vec<f64>,
    pub(crate) end_time: Vec<f64>,
    name: Vec<usize>,
    phase: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FrameTable {
    length: usize,
    address: Vec<i64>,
    inline_depth: Vec<u32>,
    category: Vec<usize>,
    subcategory: Vec<usize>,
    func: Vec<usize>,
    native_symbol: Vec<Option<usize>>,
    #[serde(rename = "innerWindowID")]
    inner_window_id: Vec<u64>,
    line: Vec<Option<u32>>,
    column: Vec<Option<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FuncTable {
    length: usize,
    name: Vec<usize>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    relevant_for_js: Vec<bool>,
    resource: Vec<i64>,
    file_name: Vec<Option<usize>>,
    line_number: Vec<Option<u32>>,
    column_number: Vec<Option<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StackTable {
    length: usize,
    prefix: Vec<Option<usize>>,
    frame: Vec<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct NoSymbols {
    length: u8,
    address: [(); 0],
    function_size: [(); 0],
    lib_index: [(); 0],
    name: [(); 0],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoResources {
    length: u8,
    lib: [(); 0],
    name: [(); 0],
    host: [(); 0],
    r#type: [(); 0],
}

/// Milliseconds of the file as nanoseconds.
pub(crate) fn ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

/// Reads a profile and checks that all that it points to is there.
#[track_caller]
pub(crate) fn read(bytes: &[u8]) -> Profile {
    let profile: Profile = serde_json::from_slice(bytes).unwrap();
    let meta = &profile.meta;
    assert_eq!((meta.preprocessed_profile_version, meta.version, meta.process_type), (55, 24, 0));
    assert_eq!(
        meta.sample_units,
        serde_json::json!({ "time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns" })
    );
    assert!(meta.symbolicated && meta.uses_only_one_stack_type && !meta.debug);
    assert!(meta.source_code_is_not_on_searchfox && meta.interval >= 0.0 && meta.start_time >= 0.0);
    assert!(meta.categories.iter().any(|category| category.color == "grey"), "the default one");
    for category in &meta.categories {
        assert!(!category.name.is_empty() && category.subcategories[0] == "Other");
    }
    for schema in &meta.marker_schema {
        assert!(schema.display.contains(&"marker-chart".into()) && !schema.description.is_empty());
        for field in &schema.fields {
            let known = ["nanoseconds", "integer", "bytes", "string", "sanitized-string"];
            assert!(known.contains(&field.format.as_str()) && !field.label.is_empty());
        }
        // Labels name fields that there are.
        for label in [&schema.chart_label, &schema.tooltip_label, &schema.table_label] {
            let named = label.split("{marker.data.").skip(1).map(|rest| rest.split('}').next().unwrap());
            named.for_each(|key| assert!(schema.fields.iter().any(|field| field.key == key), "{label}"));
        }
    }
    let mut main_threads = std::collections::HashMap::new();
    let mut tids = std::collections::HashSet::new();
    for thread in &profile.threads {
        check_thread(thread, meta);
        *main_threads.entry(&thread.pid).or_insert(0) += u32::from(thread.is_main_thread);
        assert!(tids.insert(thread.tid), "each thread once");
    }
    assert!(main_threads.values().all(|count| *count == 1), "{main_threads:?}");
    profile
}

#[track_caller]
fn check_thread(thread: &Thread, meta: &Meta) {
    assert!(thread.process_type == "default" && thread.show_markers_in_timeline);
    assert!(!thread.process_name.is_empty() && !thread.name.is_empty() && !thread.pid.is_empty());
    assert!(thread.process_startup_time >= 0.0 && thread.register_time >= 0.0);
    assert_eq!(thread.process_shutdown_time, thread.unregister_time);
    let categories = meta.categories.len();
    let strings = thread.string_array.len();

    let frames = &thread.frame_table;
    let functions = &thread.func_table;
    let stacks = &thread.stack_table;
    assert_eq!([frames.length; 9], lengths_of_frames(frames));
    assert!(frames.category.iter().all(|category| *category < categories));
    assert!(frames.subcategory.iter().all(|category| *category == 0));
    assert!(frames.func.iter().all(|function| *function < functions.length));
    assert!(frames.address.iter().all(|address| *address == -1));
    assert!(frames.native_symbol.iter().all(Option::is_none));

    let of_functions = [
        functions.name.len(),
        functions.is_js.len(),
        functions.relevant_for_js.len(),
        functions.resource.len(),
        functions.file_name.len(),
        functions.line_number.len(),
        functions.column_number.len(),
    ];
    assert_eq!([functions.length; 7], of_functions);
    assert!(
        functions.name.iter().chain(functions.file_name.iter().flatten()).all(|string| *string < strings)
    );
    assert!(functions.resource.iter().all(|resource| *resource == -1));

    assert_eq!([stacks.length; 2], [stacks.prefix.len(), stacks.frame.len()]);
    assert!(stacks.frame.iter().all(|frame| *frame < frames.length));
    assert!(stacks.prefix.iter().enumerate().all(|(at, prefix)| prefix.is_none_or(|prefix| prefix < at)));

    let samples = &thread.samples;
    let of_samples =
        [samples.stack.len(), samples.time.len(), samples.weight.len(), samples.thread_cpu_delta.len()];
    assert_eq!(([samples.length; 4], "tracing-ms"), (of_samples, samples.weight_type.as_str()));
    assert!(samples.stack.iter().flatten().all(|stack| *stack < stacks.length));
    assert!(samples.time.is_sorted());

    let markers = &thread.markers;
    let of_markers = [
        markers.category.len(),
        markers.data.len(),
        markers.start_time.len(),
        markers.end_time.len(),
        markers.name.len(),
        markers.phase.len(),
    ];
    assert_eq!([markers.length; 6], of_markers);
    assert!(markers.category.iter().all(|category| *category < categories));
    assert!(markers.name.iter().all(|name| *name < strings) && markers.phase.iter().all(|phase| *phase == 1));
    assert!(markers.start_time.iter().zip(&markers.end_time).all(|(start, end)| start <= end));
    for data in &markers.data {
        let schema = meta.marker_schema.iter().find(|schema| data["type"] == schema.name.as_str()).unwrap();
        for (key, value) in data {
            match key.as_str() {
                "type" => {}
                "cause" => assert!((value["stack"].as_u64().unwrap() as usize) < stacks.length),
                key => {
                    let field = schema.fields.iter().find(|field| field.key == key).unwrap();
                    assert_eq!(value.is_string(), field.format.ends_with("string"), "{key}: {value}");
                }
            }
        }
    }
}

fn lengths_of_frames(frames: &FrameTable) -> [usize; 9] {
    [
        frames.address.len(),
        frames.inline_depth.len(),
        frames.category.len(),
        frames.subcategory.len(),
        frames.func.len(),
        frames.native_symbol.len(),
        frames.inner_window_id.len(),
        frames.line.len(),
        frames.column.len(),
    ]
}

impl Profile {
    /// All weights, and what of that was on a CPU.
    pub(crate) fn total_ns(&self) -> (u64, u64) {
        let samples = self.threads.iter().map(|thread| &thread.samples);
        samples.fold((0, 0), |(wall_ns, cpu_ns), samples| {
            let wall: u64 = samples.weight.iter().map(|weight| ns(*weight)).sum();
            (wall_ns + wall, cpu_ns + samples.thread_cpu_delta.iter().sum::<u64>())
        })
    }
}

impl Thread {
    /// The stack of each sample, and what it weighs. Gaps are none.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = (Vec<&str>, u64)> {
        let samples = self.samples.stack.iter().zip(&self.samples.weight);
        samples.filter_map(|(stack, weight)| Some((self.names((*stack)?), ns(*weight))))
    }

    /// The functions of a stack, outermost first.
    pub(crate) fn names(&self, stack: usize) -> Vec<&str> {
        let mut names = Vec::new();
        let mut at = Some(stack);
        while let Some(stack) = at {
            let function = self.frame_table.func[self.stack_table.frame[stack]];
            names.push(self.string_array[self.func_table.name[function]].as_str());
            at = self.stack_table.prefix[stack];
        }
        names.reverse();
        names
    }
}
