//! The tasks of asyncio: what each does or waits in, and which one waits for which.

use std::collections::HashMap;

use slip_cpython::{AllTasks, AsyncioOffsets, Interpreter, Labels, Task, TaskError, TaskList, marker};
use slip_model::{FrameId, Interner, StackId, StringId, ThreadId};
use slip_remote::{LiveProcess, Pieces, ReadError, Remembered};

use crate::TargetIssue;

/// Most tasks that wait for each other in a row. Further ones are shown as if nobody waited for them, and said to be cut.
const MAX_WAITING_DEEP: u32 = 256;

/// Which tasks are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskChoice {
    /// Those that run code.
    Running,
    /// All of the process.
    All,
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// It waits.
    Waits,
    /// It is the one that its thread runs.
    Runs,
    /// It ran when it was read, and its inner frames are not known: it began to meanwhile, or another one runs within it.
    RunsUnseen,
}

/// A task, or a future that a task waits for.
#[derive(Clone, Debug)]
pub struct SeenTask {
    /// Its address: tells it from others that live at the same time.
    pub id: u64,
    /// `get_name()`; empty for a future.
    pub name: StringId,
    /// What it does.
    pub state: TaskState,
    /// What it executes or waits in, the innermost first.
    pub frames: Vec<FrameId>,
    /// The tasks that wait for it, by their number in the list; those that are not in it are left out.
    pub awaited_by: Vec<usize>,
    /// Its thread, by its number in [`TaskLook::threads`].
    pub thread: usize,
}

/// A thread that has tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskThread {
    /// As the target numbers it; 0 for that of tasks whose thread has ended.
    pub native_tid: u64,
    /// Which one it is in the recording; `None` for one that has ended, or has only just begun.
    pub thread: Option<ThreadId>,
}

/// The tasks of a process.
#[derive(Clone, Debug, Default)]
pub struct TaskLook {
    /// Their threads.
    pub threads: Vec<TaskThread>,
    /// The tasks of each thread, as they were made.
    pub tasks: Vec<SeenTask>,
}

/// A stack of a task together with those that wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskStack {
    pub(crate) stack: StackId,
    /// Those at its outer end are missing.
    pub(crate) truncated: bool,
}

impl TaskLook {
    /// For each task, the one below which it is shown where it can be shown once only: the first one that waits for it, as they were
    /// made. Tasks that wait for each other in a circle have one that is above all others, the first one made.
    pub fn parents(&self) -> Vec<Option<usize>> {
        let mut parents: Vec<Option<usize>> =
            self.tasks.iter().map(|task| task.awaited_by.iter().min().copied()).collect();
        // Whether the way up from a task has an end, 0 where that is not known. Each task is passed twice at most.
        let mut seen = vec![0; parents.len()];
        for start in 0..parents.len() {
            let number = start + 1;
            let (mut at, mut end) = (Some(start), None);
            while let Some(task) = at {
                if seen[task] != 0 {
                    end = (seen[task] == number).then_some(task);
                    break;
                }
                seen[task] = number;
                at = parents[task];
            }
            if let Some(first) = end {
                let (mut top, mut at) = (first, parents[first]);
                while let Some(task) = at.filter(|task| *task != first) {
                    top = top.min(task);
                    at = parents[task];
                }
                parents[top] = None;
            }
        }
        parents
    }

    /// The stack of each task: those that wait for it, the outermost first, each with a marker before its frames.
    pub(crate) fn stacks(&self, interner: &mut Interner) -> Vec<TaskStack> {
        let parents = self.parents();
        let mut known: Vec<Option<(TaskStack, u32)>> = vec![None; self.tasks.len()];
        let mut way = Vec::new();
        for start in 0..self.tasks.len() {
            let mut at = Some(start);
            while let Some(task) = at.filter(|task| known[*task].is_none()) {
                way.push(task);
                at = parents[task];
            }
            let mut above = at.and_then(|task| known[task]);
            while let Some(task) = way.pop() {
                let (outer, deep) = match above {
                    Some((outer, deep)) if deep < MAX_WAITING_DEEP => (outer, deep + 1),
                    above => (TaskStack { stack: StackId(0), truncated: above.is_some() }, 1),
                };
                let seen = &self.tasks[task];
                let mark = task_marker(interner, seen.name);
                let frames = seen.frames.iter().rev();
                let stack = frames
                    .fold(interner.push(outer.stack, mark), |stack, frame| interner.push(stack, *frame));
                above = Some((TaskStack { stack, ..outer }, deep));
                known[task] = above;
            }
        }
        known.into_iter().flatten().map(|(stack, _)| stack).collect()
    }
}

/// `[task NAME]`. A name that asyncio made up is left out: it is another one each time, and who counts tasks wants to see those of the
/// same coroutine as one.
fn task_marker(interner: &mut Interner, name: StringId) -> FrameId {
    let text = interner.text(name);
    let number = text.strip_prefix("Task-");
    let is_made_up = number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    let text = match text {
        "" => "[future]".to_owned(),
        _ if is_made_up => "[task]".to_owned(),
        text => format!("[task {text}]"),
    };
    marker(interner, &text)
}

/// Reads the tasks of one process.
#[derive(Debug)]
pub(crate) struct TaskReader {
    asyncio: AsyncioOffsets,
    labels: Labels,
    texts: Vec<slip_cpython::CodeText>,
    /// What the last looks read, at running tasks and at all.
    pieces: [Pieces; 2],
    all: AllTasks,
}

impl TaskReader {
    /// Finds where asyncio keeps its tasks.
    pub(crate) fn find(python: &mut Interpreter, memory: &LiveProcess) -> Result<Self, TargetIssue> {
        let asyncio = python.find_tasks(memory).map_err(issue_of)?;
        Ok(Self {
            asyncio,
            labels: Labels::default(),
            texts: Vec::new(),
            pieces: <[Pieces; 2]>::default(),
            all: AllTasks::default(),
        })
    }

    /// Reads the tasks. Who runs is read first: a task that does not run any more when all are read is still shown as it ran.
    pub(crate) fn read(
        &mut self,
        python: &mut Interpreter,
        memory: &LiveProcess,
        interner: &mut Interner,
        choice: TaskChoice,
    ) -> Result<TaskLook, TaskError> {
        let Self { asyncio, labels, texts, pieces: [of_running, of_all], all } = self;
        if labels.are_too_many() {
            *labels = Labels::default();
            python.forget_codes();
            *all = AllTasks::default();
        }
        let remembered = Remembered::new(memory, of_running);
        let running = python.running_tasks(&remembered, interner, asyncio, texts);
        remembered.finish();
        labels.learn(texts);
        let running = running?;
        if choice == TaskChoice::Running {
            return Ok(collect(&running, &running, labels, interner));
        }
        let remembered = Remembered::new(memory, of_all);
        let result = python.all_tasks(&remembered, interner, asyncio, texts, all);
        remembered.finish();
        labels.learn(texts);
        result?;
        Ok(collect(&all.lists, &running, labels, interner))
    }
}

/// Puts lists together; the first task of each list of `running` is the one that its thread runs.
fn collect(
    lists: &[TaskList],
    running: &[TaskList],
    labels: &mut Labels,
    interner: &mut Interner,
) -> TaskLook {
    let running: HashMap<u64, &Task> =
        running.iter().filter_map(|list| list.tasks.first()).map(|task| (task.addr.0, task)).collect();
    let mut look = TaskLook::default();
    let mut numbers: HashMap<u64, usize> = HashMap::new();
    let mut waiters = Vec::new();
    for list in lists {
        let thread = look.threads.len();
        for listed in &list.tasks {
            let id = listed.addr.0;
            // It may have been put into another list meanwhile, and several threads may be waited for by the same task.
            if numbers.contains_key(&id) {
                continue;
            }
            numbers.insert(id, look.tasks.len());
            let (task, state) = match running.get(&id) {
                Some(task) => (*task, TaskState::Runs),
                None if listed.runs => (listed, TaskState::RunsUnseen),
                None => (listed, TaskState::Waits),
            };
            look.tasks.push(SeenTask {
                id,
                name: interner.string(&task.name),
                state,
                frames: task.stack.iter().map(|point| labels.frame(interner, *point)).collect(),
                awaited_by: Vec::new(),
                thread,
            });
            waiters.push(task.awaited_by.iter().map(|(waiter, _)| waiter.0).collect::<Vec<u64>>());
        }
        if look.tasks.last().is_some_and(|task| task.thread == thread) {
            look.threads.push(TaskThread { native_tid: list.native_tid, thread: None });
        }
    }
    for (task, waiters) in look.tasks.iter_mut().zip(waiters) {
        task.awaited_by = waiters.iter().filter_map(|waiter| numbers.get(waiter).copied()).collect();
        task.awaited_by.sort_unstable();
    }
    look
}

/// Why a process has no tasks that could be sampled.
fn issue_of(error: TaskError) -> TargetIssue {
    match error {
        TaskError::NoAsyncio => TargetIssue::NoAsyncio,
        TaskError::Read(ReadError::Gone { .. }) => TargetIssue::NotFound,
        // The module is just being loaded.
        TaskError::Read(_) => TargetIssue::NoAsyncio,
        other => TargetIssue::Unsupported { reason: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tasks named by letters, each with one frame, which are waited for by these.
    fn look(interner: &mut Interner, awaited_by: &[&[usize]]) -> TaskLook {
        let tasks = awaited_by.iter().enumerate().map(|(at, awaited_by)| {
            let letter = char::from(b'a' + (at % 26) as u8);
            SeenTask {
                id: at as u64,
                name: interner.string(&letter.to_string()),
                state: TaskState::Waits,
                frames: vec![marker(interner, &format!("{letter}()"))],
                awaited_by: awaited_by.to_vec(),
                thread: 0,
            }
        });
        let tasks = tasks.collect();
        TaskLook { threads: vec![TaskThread { native_tid: 1, thread: None }], tasks }
    }

    fn texts(interner: &mut Interner, look: &TaskLook) -> Vec<String> {
        let stacks = look.stacks(interner);
        let text = |stack: &TaskStack| {
            let mut names: Vec<&str> =
                interner.frames_of(stack.stack).map(|id| interner.text(interner.frame_at(id).name)).collect();
            names.reverse();
            names.join(" ")
        };
        stacks.iter().map(text).collect()
    }

    #[test]
    fn a_task_stands_below_the_first_that_waits_for_it() {
        let mut interner = Interner::new();
        // c is waited for by b and a, which nobody waits for; d by c.
        let look = look(&mut interner, &[&[], &[], &[1, 0], &[2]]);
        assert_eq!(
            texts(&mut interner, &look),
            [
                "[task a] a()",
                "[task b] b()",
                "[task a] a() [task c] c()",
                "[task a] a() [task c] c() [task d] d()"
            ]
        );
    }

    #[test]
    fn tasks_that_wait_for_each_other_are_shown_once() {
        let mut interner = Interner::new();
        // d waits for itself, in a way that asyncio does not allow; e is outside of the circle of a, b and c.
        let look = look(&mut interner, &[&[2], &[0], &[1], &[3], &[1]]);
        assert_eq!(look.parents(), [None, Some(0), Some(1), None, Some(1)]);
        assert_eq!(texts(&mut interner, &look)[2], "[task a] a() [task b] b() [task c] c()");
    }

    #[test]
    fn names_that_asyncio_made_up_are_one() {
        let mut interner = Interner::new();
        let mut name = |name: &str| {
            let name = interner.string(name);
            let id = task_marker(&mut interner, name);
            interner.text(interner.frame_at(id).name).to_owned()
        };
        assert_eq!(name("Task-12"), "[task]");
        assert_eq!(name("Task-12b"), "[task Task-12b]");
        assert_eq!(name("ünicode 名"), "[task ünicode 名]");
        assert_eq!(name(""), "[future]");
    }

    #[test]
    fn a_long_row_is_cut_and_says_so() {
        let mut interner = Interner::new();
        let waiters: Vec<Vec<usize>> =
            (0..1_000_usize).map(|at| at.checked_sub(1).into_iter().collect()).collect();
        let look = look(&mut interner, &waiters.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let stacks = look.stacks(&mut interner);
        let depth = |at: usize| interner.frames_of(stacks[at].stack).count();
        let most = MAX_WAITING_DEEP as usize;
        assert_eq!((depth(most - 1), depth(most)), (2 * most, 2));
        assert_eq!((stacks[most - 1].truncated, stacks[most].truncated), (false, true));
        assert!(stacks[999].truncated, "what stands below is cut too");
    }

    proptest! {
        #[test]
        fn every_task_has_one_stack_that_ends_with_it(
            awaited_by in proptest::collection::vec(proptest::collection::vec(0_usize..12, 0..4), 12),
        ) {
            let mut interner = Interner::new();
            let look = look(&mut interner, &awaited_by.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let parents = look.parents();
            for start in 0..parents.len() {
                // Every way up ends.
                let up = std::iter::successors(Some(start), |task| parents[*task]).take(13);
                prop_assert!(up.count() <= 12);
            }
            let texts = texts(&mut interner, &look);
            prop_assert_eq!(texts.len(), 12);
            for (at, text) in texts.iter().enumerate() {
                let letter = char::from(b'a' + at as u8);
                let end = format!("[task {letter}] {letter}()");
                prop_assert!(text.ends_with(&end), "{}", text);
            }
        }
    }
}
