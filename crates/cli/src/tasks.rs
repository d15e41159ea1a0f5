//! `slip dump --async`: the tasks of asyncio, and who waits for whom.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use slip_model::{Process, ProcessId, Thread};
use slip_record::{OutsideSampler, SeenTask, Sink, TaskError, TaskLook, TaskState};
use slip_report::{clean, clean_json};

use crate::dump::{MAX_LOOKS, ShownFrame, head, shown};
use crate::failure::{self, Failure};

/// Deepest level that is indented further than the one above: with a row of thousands of tasks lines would be as long as that.
const MAX_INDENTED: usize = 40;

/// Prints the tasks of all processes.
#[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
pub(crate) fn dump(
    sampler: &mut OutsideSampler,
    sink: &mut Sink,
    stop: &AtomicBool,
    (is_json, is_paused): (bool, bool),
) -> Result<(), Failure> {
    let (looks, failed) = take(sampler, sink, stop, is_paused);
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::silent(failure::INTERRUPTED));
    }
    let text = if is_json { json(sink, &looks) } else { plain(sink, &looks) };
    crate::print(text.as_bytes())?;
    let pid = |id: ProcessId| sink.processes().get(id.0 as usize).map_or(0, |process| process.pid);
    let failures: Vec<Failure> =
        failed.iter().map(|(id, error)| of_error(pid(*id), error, is_paused)).collect();
    if looks.is_empty()
        && let Some(failure) = failures.into_iter().next()
    {
        return Err(failure);
    }
    for (id, error) in &failed {
        eprintln!("warning: {}", of_error(pid(*id), error, is_paused).words().0);
    }
    Ok(())
}

/// Tasks of processes, and why those of others could not be read.
type Taken = (Vec<(ProcessId, TaskLook)>, Vec<(ProcessId, TaskError)>);

/// One look at the tasks of each process: the first that holds together, and in which it is known where each task stands.
fn take(sampler: &mut OutsideSampler, sink: &mut Sink, stop: &AtomicBool, is_paused: bool) -> Taken {
    let (mut looks, mut failed): Taken = (Vec::new(), Vec::new());
    for _ in 0..MAX_LOOKS {
        failed.clear();
        let mut is_whole = true;
        for (id, look) in sampler.tasks(sink) {
            let at = looks.iter().position(|(known, _)| *known == id);
            if at.is_some_and(|at| is_whole_look(&looks[at].1)) {
                continue;
            }
            match (look, at) {
                (Ok(look), at) => {
                    is_whole &= is_whole_look(&look);
                    match at {
                        Some(at) => looks[at].1 = look,
                        None => looks.push((id, look)),
                    }
                }
                (Err(error), None) => failed.push((id, error)),
                // The last one was better than none.
                (Err(_), Some(_)) => is_whole = false,
            }
        }
        let is_torn =
            |(_, error): &(ProcessId, TaskError)| matches!(error, TaskError::Torn(_) | TaskError::Read(_));
        if is_paused || stop.load(Ordering::Relaxed) || (is_whole && !failed.iter().any(is_torn)) {
            break;
        }
    }
    looks.sort_by_key(|(id, _)| *id);
    (looks, failed)
}

fn is_whole_look(look: &TaskLook) -> bool {
    look.tasks.iter().all(|task| task.state != TaskState::RunsUnseen)
}

fn of_error(pid: u32, error: &TaskError, is_paused: bool) -> Failure {
    match error {
        TaskError::Torn(_) => {
            let what = format!("the tasks of process {pid} changed each time they were read");
            failure::no_stack(&what, is_paused)
        }
        TaskError::Read(error) => {
            Failure::new(failure::NO_TARGET, format!("the tasks of process {pid} could not be read: {error}"))
        }
        other => Failure::new(failure::UNSUPPORTED, format!("process {pid}: {other}")),
    }
}

fn plain(sink: &Sink, looks: &[(ProcessId, TaskLook)]) -> String {
    let mut text = String::new();
    for (id, look) in looks {
        let Some(process) = sink.processes().get(id.0 as usize) else { continue };
        text += &head(process);
        if look.tasks.is_empty() {
            text += "  no tasks\n";
        }
        let mut tree = Tree::of(look);
        for (number, thread) in look.threads.iter().enumerate() {
            let count = look.tasks.iter().filter(|task| task.thread == number).count();
            let tasks = if count == 1 { "1 task".to_owned() } else { format!("{count} tasks") };
            let _ = match thread.thread.and_then(|id| sink.threads().get(id.0 as usize)) {
                Some(Thread { tid, name, .. }) if *tid != 0 => {
                    let name = clean(sink.interner.text(*name));
                    writeln!(text, "  thread {tid} \"{name}\": {tasks}")
                }
                _ if thread.native_tid == 0 => writeln!(text, "  threads that have ended: {tasks}"),
                _ => writeln!(text, "  thread {} in its container: {tasks}", thread.native_tid),
            };
            tree.print(sink, number, &mut text);
        }
    }
    text
}

/// Which tasks stand below which.
struct Tree<'a> {
    look: &'a TaskLook,
    parents: Vec<Option<usize>>,
    /// Those that each task waits for.
    children: Vec<Vec<usize>>,
    /// Those that have been printed.
    printed: Vec<bool>,
}

impl<'a> Tree<'a> {
    fn of(look: &'a TaskLook) -> Self {
        let mut children = vec![Vec::new(); look.tasks.len()];
        for (number, task) in look.tasks.iter().enumerate() {
            for waiter in &task.awaited_by {
                children[*waiter].push(number);
            }
        }
        Self { look, parents: look.parents(), children, printed: vec![false; look.tasks.len()] }
    }

    /// The trees whose roots belong to a thread. What waits for others stands above them.
    fn print(&mut self, sink: &Sink, thread: usize, text: &mut String) {
        let roots = (0..self.look.tasks.len())
            .filter(|task| self.parents[*task].is_none() && self.look.tasks[*task].thread == thread);
        // The last one is printed next.
        let mut todo: Vec<(usize, usize)> = roots.map(|root| (root, 0)).collect();
        todo.reverse();
        while let Some((number, level)) = todo.pop() {
            let task = &self.look.tasks[number];
            let indent = " ".repeat(4 + 2 * level.min(MAX_INDENTED));
            let name = match sink.interner.text(task.name) {
                "" => "future".to_owned(),
                name => format!("task \"{}\"", clean(name)),
            };
            let _ = write!(text, "{indent}{name} {:#x}: {}", task.id, state_word(task));
            if task.awaited_by.len() > 1 {
                let _ = write!(text, ", {} wait for it", task.awaited_by.len());
            }
            // Its stack and what it waits for are shown once.
            if std::mem::replace(&mut self.printed[number], true) {
                text.push_str(", shown above\n");
                continue;
            }
            text.push('\n');
            let frames: Vec<ShownFrame<'_>> = shown(&sink.interner, task.frames.iter().copied()).collect();
            for frame in frames.iter().rev() {
                let _ = writeln!(text, "{indent}  {}", frame.text());
            }
            let below = self.children[number].iter().rev();
            todo.extend(below.map(|child| (*child, level + 1)));
        }
    }
}

fn state_word(task: &SeenTask) -> &'static str {
    match task.state {
        TaskState::Waits => "waiting",
        TaskState::Runs => "running",
        TaskState::RunsUnseen => "running, inner frames not known",
    }
}

fn json(sink: &Sink, looks: &[(ProcessId, TaskLook)]) -> String {
    let processes: Vec<serde_json::Value> = looks
        .iter()
        .filter_map(|(id, look)| Some(process_json(sink, sink.processes().get(id.0 as usize)?, look)))
        .collect();
    let document = serde_json::json!({ "schema": "slip.dump/1", "processes": processes });
    let mut text = clean_json(&serde_json::to_string_pretty(&document).unwrap_or_default()).into_owned();
    text.push('\n');
    text
}

fn process_json(sink: &Sink, process: &Process, look: &TaskLook) -> serde_json::Value {
    // Larger numbers than 2^53 are not safe in JSON.
    let id = |task: &SeenTask| format!("{:#x}", task.id);
    let tasks: Vec<serde_json::Value> = look
        .tasks
        .iter()
        .map(|task| {
            let thread = look.threads[task.thread].thread;
            let thread =
                thread.and_then(|id| sink.threads().get(id.0 as usize)).filter(|thread| thread.tid != 0);
            let frames: Vec<serde_json::Value> =
                shown(&sink.interner, task.frames.iter().copied()).map(|frame| frame.json()).collect();
            serde_json::json!({
                "id": id(task), "name": sink.interner.text(task.name),
                "tid": thread.map(|thread| thread.tid),
                "thread_name": thread.map(|thread| sink.interner.text(thread.name)),
                "running": task.state != TaskState::Waits,
                "truncated": task.state == TaskState::RunsUnseen,
                "awaited_by": task.awaited_by.iter().map(|at| id(&look.tasks[*at])).collect::<Vec<_>>(),
                "frames": frames,
            })
        })
        .collect();
    serde_json::json!({
        "pid": process.pid, "ns_pid": process.ns_pid, "title": process.title,
        "language": process.language, "version": process.version, "tasks": tasks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_never_hold_together_are_not_enough_evidence() {
        let torn = of_error(7, &TaskError::Torn("The list of tasks changed while it was read"), false);
        assert_eq!(torn.code, failure::NO_EVIDENCE);
        assert_eq!(torn.words().0, "the tasks of process 7 changed each time they were read");
        assert!(torn.words().1.is_some_and(|hint| hint.contains("--pause")));
    }
}
