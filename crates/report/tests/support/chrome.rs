//! A strict reader of trace events: the keys that each phase must have, and no other.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Trace {
    pub(crate) trace_events: Vec<BTreeMap<String, Value>>,
    display_time_unit: String,
    other_data: BTreeMap<String, Value>,
    stack_frames: BTreeMap<u32, Frame>,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Frame {
    name: String,
    category: String,
    parent: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sample {
    pub(crate) tid: u64,
    pub(crate) ts: f64,
    name: String,
    pub(crate) sf: u32,
    pub(crate) weight: u64,
}

/// Reads a trace and checks that all that it points to is there.
#[track_caller]
pub(crate) fn read(bytes: &[u8]) -> Trace {
    let trace: Trace = serde_json::from_slice(bytes).unwrap();
    assert!(trace.display_time_unit == "ns" && trace.other_data["tool"].is_string());
    for (number, frame) in &trace.stack_frames {
        assert!(!frame.name.is_empty() && !frame.category.is_empty());
        assert!(frame.parent.is_none_or(|parent| parent < *number), "a caller is before what it calls");
    }
    assert!((0..).zip(trace.stack_frames.keys()).all(|(expected, number)| expected == *number));

    let mut threads = HashSet::new();
    let mut processes = HashSet::new();
    let mut open: HashMap<String, Vec<&Value>> = HashMap::new();
    let mut ends: HashMap<u64, f64> = HashMap::new();
    for event in &trace.trace_events {
        let keys: Vec<&str> = event.keys().map(String::as_str).collect();
        let (pid, tid) = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let ts = event["ts"].as_f64().unwrap();
        let identity = || vec![&event["cat"], &event["name"], &event["pid"]];
        match event["ph"].as_str().unwrap() {
            "M" => {
                assert_eq!(keys, ["args", "name", "ph", "pid", "tid", "ts"]);
                assert!(!event["args"]["name"].as_str().unwrap().is_empty());
                match event["name"].as_str().unwrap() {
                    "process_name" => assert!(processes.insert(pid)),
                    "thread_name" => assert!(threads.insert(tid) && processes.contains(&pid)),
                    other => panic!("{other}"),
                }
            }
            "X" => {
                assert_eq!(keys, ["args", "cat", "dur", "name", "ph", "pid", "tid", "ts"]);
                // To the nanosecond, as sums of numbers of 53 bits are not.
                let end = ends.insert(tid, (ts + event["dur"].as_f64().unwrap()) * 1e3);
                assert!(end.is_none_or(|end| end.round() <= (ts * 1e3).round()), "none overlap");
            }
            "b" => {
                assert_eq!(keys, ["args", "cat", "id", "name", "ph", "pid", "tid", "ts"]);
                assert!(open.insert(event["id"].as_str().unwrap().into(), identity()).is_none());
            }
            "e" => {
                assert_eq!(keys, ["cat", "id", "name", "ph", "pid", "tid", "ts"]);
                assert_eq!(open.remove(event["id"].as_str().unwrap()), Some(identity()));
            }
            other => panic!("{other}"),
        }
        assert!(threads.contains(&tid) || event["ph"] == "M");
    }
    assert!(open.is_empty(), "{open:?}");
    for sample in &trace.samples {
        assert!(threads.contains(&sample.tid) && trace.stack_frames.contains_key(&sample.sf));
        assert!(sample.weight > 0 && sample.ts >= 0.0 && ["on CPU", "off CPU"].contains(&&*sample.name));
    }
    trace
}

impl Trace {
    /// All weights, and what of that was on a CPU.
    pub(crate) fn total_ns(&self) -> (u64, u64) {
        let on_cpu = self.samples.iter().filter(|sample| sample.name == "on CPU");
        (self.samples.iter().map(|sample| sample.weight).sum(), on_cpu.map(|sample| sample.weight).sum())
    }

    /// The frames of a sample, outermost first.
    pub(crate) fn names(&self, sample: &Sample) -> Vec<&str> {
        let mut names = Vec::new();
        let mut at = Some(sample.sf);
        while let Some(number) = at {
            names.push(self.stack_frames[&number].name.as_str());
            at = self.stack_frames[&number].parent;
        }
        names.reverse();
        names
    }
}
