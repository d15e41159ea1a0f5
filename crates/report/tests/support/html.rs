//! What the page's script is given.

use serde::Deserialize;

/// As much of it as tests look at.
#[derive(Debug, Deserialize)]
pub(crate) struct Data {
    pub(crate) schema: String,
    pub(crate) functions: Functions,
    pub(crate) nodes: Nodes,
    pub(crate) weights: Weights,
    pub(crate) base: Option<Base>,
    pub(crate) requests: Requests,
    pub(crate) pieces: Pieces,
    pub(crate) kinds: Vec<Kind>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Functions {
    pub(crate) name: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Nodes {
    pub(crate) up: Vec<usize>,
    pub(crate) function: Vec<usize>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Weights {
    pub(crate) node: Vec<usize>,
    pub(crate) on_ns: Vec<u64>,
    pub(crate) off_ns: Vec<u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Base {
    pub(crate) name: String,
    pub(crate) weights: Weights,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Requests {
    pub(crate) begin_ns: Vec<u64>,
    pub(crate) end_ns: Vec<u64>,
    pub(crate) text: Vec<usize>,
    pub(crate) texts: Vec<String>,
    pub(crate) first: Vec<usize>,
    pub(crate) kind: Vec<usize>,
    pub(crate) ns: Vec<u64>,
    pub(crate) shared: Vec<usize>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Pieces {
    pub(crate) ns: Vec<u64>,
    pub(crate) node: Vec<usize>,
    pub(crate) request: Vec<usize>,
    pub(crate) kind: Vec<usize>,
    pub(crate) waits_from: usize,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Kind {
    pub(crate) key: String,
    pub(crate) name: String,
}

/// Reads the data of a page as a browser does: up to the end of its element.
pub(crate) fn read(page: &[u8]) -> Data {
    let page = std::str::from_utf8(page).unwrap();
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    let (json, _) = rest.split_once("</script").unwrap();
    let data: Data = serde_json::from_str(json).unwrap();
    assert_eq!(data.schema, "slip.page/1");
    data
}

impl Weights {
    /// All, and what of that is on a CPU.
    pub(crate) fn total_ns(&self) -> (u64, u64) {
        let on_ns = self.on_ns.iter().sum::<u64>();
        (on_ns + self.off_ns.iter().sum::<u64>(), on_ns)
    }
}

impl Data {
    /// The functions of a node's stack by name, the outermost first.
    pub(crate) fn stack(&self, node: usize) -> Vec<String> {
        let mut at = Some(node);
        let mut stack = Vec::new();
        while let Some(node) = at {
            let function = self.nodes.function[node];
            stack.push(self.functions.name[function].clone());
            let up = self.nodes.up[node];
            at = (up > 0).then(|| node - up);
        }
        stack.reverse();
        stack
    }
}
