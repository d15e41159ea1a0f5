//! The JSON report is what its schema says.
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use serde_json::Value;
use slip_report::{Format, Options, render};
use support::schema::check;
use support::{Builder, both_languages, kernel_frames, only_waits, samples_and_waits};

const SCHEMA: &str = include_str!("../schema/slip.report-1.schema.json");

#[test]
fn reports_follow_the_schema() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    for recording in [
        both_languages(),
        samples_and_waits(),
        kernel_frames(),
        only_waits(),
        Builder::new("").finish(),
        slip_model::Recording::default(),
    ] {
        let json = render(&recording, Format::Json, &Options::default()).unwrap();
        let report: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(check(&schema, &schema, &report, "$"), [""; 0]);
        assert!(json.ends_with(b"}\n"));
    }
}

#[test]
fn the_check_finds_what_is_wrong() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let json = render(&both_languages(), Format::Json, &Options::default()).unwrap();
    let good: Value = serde_json::from_slice(&json).unwrap();
    let broken = |change: fn(&mut Value)| {
        let mut report = good.clone();
        change(&mut report);
        check(&schema, &schema, &report, "$").len()
    };
    assert_eq!(broken(|report| drop(report.as_object_mut().unwrap().remove("wall_ns"))), 1);
    assert_eq!(broken(|report| report["more"] = 1.into()), 1);
    assert_eq!(broken(|report| report["schema"] = "slip.report/2".into()), 1);
    assert_eq!(broken(|report| report["time"]["idle_share_of_total"] = 1.01.into()), 1);
    assert_eq!(broken(|report| report["groups"][0]["language"] = "perl".into()), 1);
    assert_eq!(broken(|report| report["processes"][0]["pid"] = (-1).into()), 1);
    assert_eq!(broken(|report| report["notes"] = "none".into()), 1);
}
