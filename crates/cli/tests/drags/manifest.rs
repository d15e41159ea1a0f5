//! The table of labs: `labs/drags/manifest`.

use std::fs;
use std::ops::Range;

use slip_doctor::Rule;

use crate::lab::folder;

/// A row of it.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) name: String,
    /// The rule that has to find something, and the cause that it has to name; `None` of a twin.
    pub(crate) finds: Option<(&'static Rule, String)>,
    /// Rules that must find nothing.
    pub(crate) silent: Vec<&'static Rule>,
    /// What the finding may say that it costs, as a multiple of what the lab's own clock says.
    pub(crate) size: Option<Range<f64>>,
    /// A native program, which is started by who watches it, and its number of operations.
    pub(crate) operations: Option<u64>,
}

/// All of it.
///
/// # Panics
///
/// If it is not as its head says.
pub(crate) fn labs() -> Vec<Lab> {
    let text = fs::read_to_string(folder().join("manifest")).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(lab).collect()
}

fn lab(line: &str) -> Lab {
    let fields: Vec<&str> = line.split('|').map(str::trim).collect();
    let [name, rule, cause, silent, size, service, _settings, page, _load, what] = fields[..] else {
        panic!("{} fields: {line}", fields.len());
    };
    assert!(!what.is_empty(), "{line}");
    let named = |id: &str| Rule::named(id).unwrap_or_else(|| panic!("no rule is called {id}: {line}"));
    let cause = || given(cause).unwrap_or_else(|| panic!("a cause: {line}")).to_owned();
    let finds = given(rule).map(|id| (named(id), cause()));
    let silent = match silent {
        "others" => {
            let is_other = |rule: &&&'static Rule| finds.as_ref().is_none_or(|(finds, _)| *finds != **rule);
            Rule::ALL.iter().filter(is_other).copied().collect()
        }
        list => list.split_whitespace().map(named).collect(),
    };
    let size = given(size).map(|size| {
        let (low, high) = size.split_once("..").unwrap();
        low.parse().unwrap()..high.parse().unwrap()
    });
    let operations =
        (service == "native").then(|| page.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap());
    Lab { name: name.to_owned(), finds, silent, size, operations }
}

fn given(field: &str) -> Option<&str> {
    (field != "-").then_some(field)
}
