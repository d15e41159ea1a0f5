//! A small check of JSON against JSON Schema.
#![allow(clippy::unwrap_used, reason = "test code")]

use serde_json::Value;

/// What breaks the schema: the part of JSON Schema that ours and that of speedscope use. Anything else in it is a failure,
/// so that nothing is passed over.
pub(crate) fn check(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (keyword, rule) in schema.as_object().unwrap() {
        let holds = match keyword.as_str() {
            "$schema" | "$id" | "title" | "description" | "$defs" | "definitions" => true,
            "$ref" => {
                let pointer = rule.as_str().unwrap().strip_prefix('#').unwrap();
                wrong.extend(check(root, root.pointer(pointer).unwrap(), value, at));
                true
            }
            "anyOf" => rule.as_array().unwrap().iter().any(|rule| check(root, rule, value, at).is_empty()),
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "type" => match rule {
                Value::Array(types) => types.iter().any(|kind| is_a(value, kind)),
                kind => is_a(value, kind),
            },
            "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    wrong.extend(check(root, rule, item, &format!("{at}[{index}]")));
                }
                true
            }
            "properties" => {
                for (name, rule) in rule.as_object().unwrap() {
                    if let Some(property) = value.get(name) {
                        wrong.extend(check(root, rule, property, &format!("{at}.{name}")));
                    }
                }
                true
            }
            "required" => {
                let names = rule.as_array().unwrap();
                value
                    .as_object()
                    .is_none_or(|object| names.iter().all(|name| object.contains_key(name.as_str().unwrap())))
            }
            "additionalProperties" => {
                assert_eq!(rule, false);
                let known = schema["properties"].as_object().unwrap();
                value.as_object().is_none_or(|object| object.keys().all(|name| known.contains_key(name)))
            }
            unknown => panic!("{at}: the schema uses {unknown}, which this check does not know"),
        };
        if !holds {
            wrong.push(format!("{at} breaks {keyword}: {rule}"));
        }
    }
    wrong
}

fn is_a(value: &Value, kind: &Value) -> bool {
    match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    }
}
