//! The tables of a thread: strings, functions, frames and stacks, by column.

use std::collections::HashMap;

use serde::Serialize;
use serde::ser::{SerializeMap as _, SerializeSeq as _, Serializer};
use slip_model::{FrameId, FrameKind};

use super::{Category, Source};
use crate::fold::{Element, KERNEL};
use crate::stacks::Node;
use crate::text::clean;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tables {
    frame_table: FrameTable,
    func_table: FuncTable,
    stack_table: StackTable,
    native_symbols: Empty,
    resource_table: Empty,
    string_array: Vec<String>,
}

/// Strings of a thread, each once.
#[derive(Default)]
pub(super) struct Strings {
    numbers: HashMap<String, u32>,
    strings: Vec<String>,
}

impl Strings {
    /// The number of a text, of which what is harmful is written out.
    pub(super) fn number(&mut self, text: &str) -> u32 {
        let text = clean(text);
        if let Some(number) = self.numbers.get(text.as_ref()) {
            return *number;
        }
        let number = self.strings.len() as u32;
        self.strings.push(text.clone().into_owned());
        self.numbers.insert(text.into_owned(), number);
        number
    }
}

#[derive(Default)]
struct FrameTable {
    category: Vec<u32>,
    func: Vec<u32>,
    line: Vec<Option<u32>>,
}

#[derive(Default)]
struct FuncTable {
    name: Vec<u32>,
    file_name: Vec<Option<u32>>,
    line_number: Vec<Option<u32>>,
}

#[derive(Default)]
struct StackTable {
    prefix: Vec<Option<u32>>,
    frame: Vec<u32>,
}

/// A table that has its columns, and no row.
struct Empty(&'static [&'static str]);

impl Tables {
    /// The nodes have frames of the recording.
    pub(super) fn of(source: &Source<'_>, nodes: &[Node], strings: Strings) -> Self {
        let mut builder =
            Builder { source, strings, frames: FrameTable::default(), functions: FuncTable::default() };
        let mut frame_of: HashMap<Element<u32>, u32> = HashMap::new();
        let mut function_of: HashMap<Element<u32>, u32> = HashMap::new();
        let mut stacks = StackTable::default();
        for (parent, element) in nodes {
            let frame =
                *frame_of.entry(*element).or_insert_with(|| builder.frame(*element, &mut function_of));
            stacks.prefix.push(*parent);
            stacks.frame.push(frame);
        }
        Self {
            frame_table: builder.frames,
            func_table: builder.functions,
            stack_table: stacks,
            native_symbols: Empty(&["address", "functionSize", "libIndex", "name"]),
            resource_table: Empty(&["lib", "name", "host", "type"]),
            string_array: builder.strings.strings,
        }
    }
}

struct Builder<'a> {
    source: &'a Source<'a>,
    strings: Strings,
    frames: FrameTable,
    functions: FuncTable,
}

impl Builder<'_> {
    /// Adds a frame; `function_of` has the functions that are there, by number in the recording or by marker.
    fn frame(&mut self, element: Element<u32>, function_of: &mut HashMap<Element<u32>, u32>) -> u32 {
        let (identity, category, line) = match element {
            Element::Marker(marker) => (element, category_of_marker(marker), 0),
            Element::Frame(id) => {
                let frame = self.source.recording.interner.frame_at(FrameId(id));
                (Element::Frame(self.source.function(id)), category_of_kind(frame.kind), frame.line)
            }
        };
        let function = match function_of.get(&identity) {
            Some(function) => *function,
            None => {
                let function = self.function(identity);
                function_of.insert(identity, function);
                function
            }
        };
        let number = self.frames.func.len() as u32;
        self.frames.category.push(category as u32);
        self.frames.func.push(function);
        self.frames.line.push(Some(line).filter(|line| *line != 0));
        number
    }

    fn function(&mut self, identity: Element<u32>) -> u32 {
        let interner = &self.source.recording.interner;
        let (name, file, line) = match identity {
            Element::Marker(marker) => (marker, "", 0),
            Element::Frame(number) => {
                let function = self.source.functions[number as usize];
                let file = match (function.kind, interner.text(function.file)) {
                    (FrameKind::Kernel, "") => KERNEL,
                    (_, file) => file,
                };
                (interner.text(function.name), file, function.first_line)
            }
        };
        let number = self.functions.name.len() as u32;
        self.functions.name.push(self.strings.number(if name.is_empty() { "[unnamed]" } else { name }));
        self.functions.file_name.push(if file.is_empty() { None } else { Some(self.strings.number(file)) });
        self.functions.line_number.push(Some(line).filter(|line| *line != 0));
        number
    }
}

fn category_of_kind(kind: FrameKind) -> Category {
    match kind {
        FrameKind::Python => Category::Python,
        FrameKind::Php => Category::Php,
        FrameKind::PhpInternal => Category::PhpInternal,
        FrameKind::Native => Category::Native,
        FrameKind::Kernel => Category::Kernel,
        FrameKind::Server => Category::Waits,
        FrameKind::Marker | FrameKind::Instruction => Category::Other,
    }
}

fn category_of_marker(marker: &str) -> Category {
    match marker {
        "[engine]" => Category::Engine,
        "[idle]" => Category::Idle,
        "[stopped]" => Category::Waits,
        _ if marker.starts_with("[waits") => Category::Waits,
        _ => Category::Other,
    }
}

/// A column in which all rows are the same.
struct Same<T>(T, usize);

impl<T: Serialize> Serialize for Same<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut column = serializer.serialize_seq(Some(self.1))?;
        for _ in 0..self.1 {
            column.serialize_element(&self.0)?;
        }
        column.end()
    }
}

/// Numbers that do not exist.
const NO_ADDRESS: i32 = -1;
const NO_RESOURCE: i32 = -1;

impl Serialize for FrameTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let length = self.func.len();
        let mut table = serializer.serialize_map(None)?;
        table.serialize_entry("length", &length)?;
        table.serialize_entry("address", &Same(NO_ADDRESS, length))?;
        table.serialize_entry("inlineDepth", &Same(0, length))?;
        table.serialize_entry("category", &self.category)?;
        table.serialize_entry("subcategory", &Same(0, length))?;
        table.serialize_entry("func", &self.func)?;
        table.serialize_entry("nativeSymbol", &Same((), length))?;
        table.serialize_entry("innerWindowID", &Same(0, length))?;
        table.serialize_entry("line", &self.line)?;
        table.serialize_entry("column", &Same((), length))?;
        table.end()
    }
}

impl Serialize for FuncTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let length = self.name.len();
        let mut table = serializer.serialize_map(None)?;
        table.serialize_entry("length", &length)?;
        table.serialize_entry("name", &self.name)?;
        table.serialize_entry("isJS", &Same(false, length))?;
        table.serialize_entry("relevantForJS", &Same(false, length))?;
        table.serialize_entry("resource", &Same(NO_RESOURCE, length))?;
        table.serialize_entry("fileName", &self.file_name)?;
        table.serialize_entry("lineNumber", &self.line_number)?;
        table.serialize_entry("columnNumber", &Same((), length))?;
        table.end()
    }
}

impl Serialize for StackTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut table = serializer.serialize_map(None)?;
        table.serialize_entry("length", &self.frame.len())?;
        table.serialize_entry("prefix", &self.prefix)?;
        table.serialize_entry("frame", &self.frame)?;
        table.end()
    }
}

impl Serialize for Empty {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut table = serializer.serialize_map(None)?;
        table.serialize_entry("length", &0)?;
        for column in self.0 {
            table.serialize_entry(column, &Same((), 0))?;
        }
        table.end()
    }
}
