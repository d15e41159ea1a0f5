//! Results that were handed out, to be handed out again.
//!
//! All have the same shape: a list of groups (interpreters, or threads with tasks), each with a list of members (threads, or tasks). A
//! caller may keep a result, or parts of it, and may change its lists. So one is handed out again only if nobody but us holds any list or
//! structure in it by now, and no list in it was changed. Then those of its members are replaced that were seen anew since.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyType};

use crate::layout::{has_items, have_same_items, is_as_known, references};
use crate::types::{Types, new_struct, track};

/// Most lists and items of lists of a result that is kept: a caller that has let go of a large one gets its memory back.
const MAX_OBJECTS: usize = 100_000;

/// A caller that still has this many results, each when it was its turn again, keeps them all: none is kept for it...
const MAX_REFUSED: u32 = 16;

/// ...until it has got this many more.
const MAX_UNKEPT: u32 = 1_024;

/// A state of something that was seen. None comes twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u64);

impl Version {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a group has members of.
pub(crate) trait Member {
    /// Another one if another object would be made.
    fn version(&self) -> Version;

    /// A new object, with all lists that are in it taken down.
    fn to_object<'py>(
        &self,
        py: Python<'py>,
        types: &Types,
        notes: &mut Notes,
    ) -> PyResult<Bound<'py, PyAny>>;
}

/// A group as it was seen last: its id, the same object as long as it is the same id, and its members.
pub(crate) type SeenGroup<'a, M> = (&'a Py<PyInt>, &'a [M]);

/// Takes down the lists in a member.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    is_on: bool,
    lists: Vec<NotedList>,
    /// The items of those that are not lists of frames.
    items: Vec<Py<PyAny>>,
}

/// A list in a member. Each is in one structure.
#[derive(Debug)]
struct NotedList {
    list: Py<PyList>,
    items: Items,
}

#[derive(Debug)]
enum Items {
    /// Frames, which hold no list and are shared by all results; those of another list, which is never handed out.
    Frames(Py<PyList>),
    /// Structures that were made for this list: these of the items that were noted.
    Own(std::ops::Range<usize>),
}

impl Notes {
    /// A new structure with lists in it.
    pub(crate) fn structure<'py, const N: usize>(
        &self,
        of: &Bound<'py, PyType>,
        items: [Bound<'py, PyAny>; N],
    ) -> PyResult<Bound<'py, PyAny>> {
        structure(self.is_on, of, items)
    }

    /// Takes down a list of the frames that are in `known` as well, which is never handed out nor changed.
    pub(crate) fn add_frames(&mut self, list: &Bound<'_, PyList>, known: &Py<PyList>) {
        if self.is_on {
            let items = Items::Frames(known.clone_ref(list.py()));
            self.lists.push(NotedList { list: list.clone().unbind(), items });
        }
    }

    /// Takes down a list of structures.
    pub(crate) fn add_own(&mut self, list: &Bound<'_, PyList>) {
        if self.is_on {
            let from = self.items.len();
            self.items.extend(list.iter().map(Bound::unbind));
            let items = Items::Own(from..self.items.len());
            self.lists.push(NotedList { list: list.clone().unbind(), items });
        }
    }

    /// Whether nobody else holds a part of the member, and all its lists are as they were made.
    fn are_free(&self, py: Python<'_>) -> bool {
        self.lists.iter().all(|NotedList { list, items }| {
            is_ours(py, list)
                && match items {
                    Items::Frames(known) => have_same_items(py, list, known),
                    Items::Own(range) => have_all(py, list, &self.items[range.clone()]),
                }
        })
    }

    fn objects(&self, py: Python<'_>) -> usize {
        let frames = self.lists.iter().map(|list| match &list.items {
            Items::Frames(known) => 1 + known.bind(py).len(),
            Items::Own(_) => 1,
        });
        self.items.len() + frames.sum::<usize>()
    }
}

/// A new structure with lists in it. If it is kept, the garbage collector is told of it, which it is not of other ones: the caller may put
/// into a list what holds us.
fn structure<'py, const N: usize>(
    is_kept: bool,
    of: &Bound<'py, PyType>,
    items: [Bound<'py, PyAny>; N],
) -> PyResult<Bound<'py, PyAny>> {
    let made = new_struct(of, items)?;
    if is_kept {
        track(&made);
    }
    Ok(made)
}

/// Whether an object is held by what it is in, by us, and by nobody else.
fn is_ours<T>(py: Python<'_>, object: &Py<T>) -> bool {
    references(py, object) == 2
}

/// Whether a list has exactly these structures, which are held by nobody else.
fn have_all(py: Python<'_>, list: &Py<PyList>, items: &[Py<PyAny>]) -> bool {
    has_items(py, list, items) && items.iter().all(|item| is_ours(py, item))
}

/// A result as it was made. It holds each list and each item of a list once more, so that an address stands for one object.
#[derive(Debug)]
pub(crate) struct Tree {
    top: Py<PyList>,
    /// Its items.
    objects: Vec<Py<PyAny>>,
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    id: Py<PyInt>,
    list: Py<PyList>,
    /// Its items.
    objects: Vec<Py<PyAny>>,
    members: Vec<(Version, Notes)>,
}

impl Tree {
    fn new<'a, M: Member + 'a>(
        py: Python<'_>,
        types: &Types,
        of: &Py<PyType>,
        groups: impl Iterator<Item = SeenGroup<'a, M>>,
        is_on: bool,
    ) -> PyResult<Self> {
        let mut tree = Self { top: PyList::empty(py).unbind(), objects: Vec::new(), groups: Vec::new() };
        for (id, members) in groups {
            let list = PyList::empty(py);
            let mut group = Group {
                id: id.clone_ref(py),
                list: list.clone().unbind(),
                objects: Vec::with_capacity(members.len()),
                members: Vec::with_capacity(members.len()),
            };
            for member in members {
                let mut notes = Notes { is_on, ..Notes::default() };
                let object = member.to_object(py, types, &mut notes)?;
                list.append(&object)?;
                group.objects.push(object.unbind());
                group.members.push((member.version(), notes));
            }
            let object = structure(is_on, of.bind(py), [id.bind(py).clone().into_any(), list.into_any()])?;
            tree.top.bind(py).append(&object)?;
            tree.objects.push(object.unbind());
            tree.groups.push(group);
        }
        Ok(tree)
    }

    /// Whether nobody else holds a part of it, and all lists are as they were made.
    fn is_free(&self, py: Python<'_>) -> bool {
        references(py, &self.top) == 1
            && have_all(py, &self.top, &self.objects)
            && self.groups.iter().all(|group| {
                is_ours(py, &group.list)
                    && have_all(py, &group.list, &group.objects)
                    && group.members.iter().all(|(_, notes)| notes.are_free(py))
            })
    }

    /// Replaces what was seen anew. `None` if there are other groups by now, or other numbers of members; else how many were replaced.
    ///
    /// It must be free: so what goes is ours alone, and runs no code of the caller.
    fn renew<'a, M: Member + 'a>(
        &mut self,
        py: Python<'_>,
        types: &Types,
        groups: impl Iterator<Item = SeenGroup<'a, M>> + Clone,
    ) -> PyResult<Option<usize>> {
        let is_same = |group: &Group, (id, members): SeenGroup<'a, M>| {
            group.id.is(id) && group.objects.len() == members.len()
        };
        let mut seen = groups.clone();
        let all = self.groups.iter().all(|group| seen.next().is_some_and(|seen| is_same(group, seen)));
        if !all || seen.next().is_some() {
            return Ok(None);
        }
        let mut replaced = 0;
        for (group, (_, members)) in self.groups.iter_mut().zip(groups) {
            for (at, (member, (version, notes))) in members.iter().zip(&mut group.members).enumerate() {
                if *version == member.version() {
                    continue;
                }
                let mut new = Notes { is_on: true, ..Notes::default() };
                let object = member.to_object(py, types, &mut new)?;
                group.list.bind(py).set_item(at, &object)?;
                group.objects[at] = object.unbind();
                (*version, *notes) = (member.version(), new);
                replaced += 1;
            }
        }
        Ok(Some(replaced))
    }

    fn objects(&self, py: Python<'_>) -> usize {
        let members = self.groups.iter().flat_map(|group| &group.members);
        self.groups.len() + members.map(|(_, notes)| 1 + notes.objects(py)).sum::<usize>()
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.top)?;
        self.objects.iter().try_for_each(|object| visit.call(object))?;
        for group in &self.groups {
            visit.call(&group.list)?;
            group.objects.iter().try_for_each(|object| visit.call(object))?;
            for (_, notes) in &group.members {
                notes.lists.iter().try_for_each(|list| visit.call(&list.list))?;
                notes.items.iter().try_for_each(|item| visit.call(item))?;
            }
        }
        Ok(())
    }
}

/// The results of one operation that may be handed out again: two in turns, because the caller as a rule still has the last one when it
/// asks for the next.
#[derive(Debug)]
pub(crate) struct Results {
    trees: [Option<Tree>; 2],
    next: usize,
    /// None is kept of an operation whose results hardly ever are as they were.
    may_keep: bool,
    /// How many more may be refused, and then how many are not kept.
    refusals_left: u32,
    unkept_left: u32,
    /// Those that the caller may have put something of its own into. Dropping them may run code of the caller, which may call us.
    dropped: Vec<Tree>,
}

impl Results {
    pub(crate) fn new(may_keep: bool) -> Self {
        let (refusals_left, unkept_left) = (MAX_REFUSED, 0);
        Self { trees: [None, None], next: 0, may_keep, refusals_left, unkept_left, dropped: Vec::new() }
    }

    /// What is to be dropped when all locks are free.
    pub(crate) fn take_dropped(&mut self) -> Vec<Tree> {
        mem::take(&mut self.dropped)
    }

    /// One that was handed out before, or a new one. Its groups are structures `of` a type.
    pub(crate) fn hand_out<'py, 'a, M: Member + 'a>(
        &mut self,
        py: Python<'py>,
        types: &Types,
        of: &Py<PyType>,
        groups: impl Iterator<Item = SeenGroup<'a, M>> + Clone,
    ) -> PyResult<Bound<'py, PyList>> {
        self.next = 1 - self.next;
        let slot = &mut self.trees[self.next];
        if let Some(tree) = slot {
            if tree.is_free(py) {
                self.refusals_left = MAX_REFUSED;
                if let Some(replaced) = tree.renew(py, types, groups.clone())? {
                    let top = tree.top.bind(py).clone();
                    if replaced > 0 && tree.objects(py) > MAX_OBJECTS {
                        *slot = None;
                    }
                    return Ok(top);
                }
                *slot = None;
            } else {
                self.dropped.extend(slot.take());
                self.refusals_left = self.refusals_left.saturating_sub(1);
                if self.refusals_left == 0 {
                    self.refusals_left = MAX_REFUSED;
                    self.unkept_left = MAX_UNKEPT;
                }
            }
        }
        let is_kept = self.may_keep && self.unkept_left == 0 && is_as_known(py);
        self.unkept_left = self.unkept_left.saturating_sub(1);
        let tree = Tree::new(py, types, of, groups, is_kept)?;
        let top = tree.top.bind(py).clone();
        *slot = (is_kept && tree.objects(py) <= MAX_OBJECTS).then_some(tree);
        Ok(top)
    }

    /// Shows the garbage collector what is held: a caller may have put into a list what holds the unwinder.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.trees.iter().flatten().chain(&self.dropped).try_for_each(|tree| tree.traverse(visit))
    }
}
