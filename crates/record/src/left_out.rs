//! Processes of a target that are not sampled, and why.

use std::collections::BTreeMap;

use crate::TargetIssue;

/// Remembers those that run, and of those that have ended one: a tree may have thousands that live for a moment.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    running: BTreeMap<u32, TargetIssue>,
    ended: Option<(u32, TargetIssue)>,
}

impl LeftOut {
    /// The process cannot be sampled now.
    pub(crate) fn add(&mut self, pid: u32, issue: TargetIssue) {
        self.running.insert(pid, issue);
    }

    /// The process is sampled after all.
    pub(crate) fn remove(&mut self, pid: u32) {
        self.running.remove(&pid);
    }

    /// The process has ended.
    pub(crate) fn end(&mut self, pid: u32) {
        let Some(issue) = self.running.remove(&pid) else { return };
        if self.ended.as_ref().is_none_or(|(_, known)| is_missed(&issue) || !is_missed(known)) {
            self.ended = Some((pid, issue));
        }
    }

    /// Those that run and the last one that has ended; first those that the user will miss.
    pub(crate) fn list(&self) -> Vec<(u32, TargetIssue)> {
        let running = self.running.iter().map(|(pid, issue)| (*pid, issue.clone()));
        let mut list: Vec<(u32, TargetIssue)> = running.chain(self.ended.clone()).collect();
        list.sort_by_key(|(_, issue)| !is_missed(issue));
        list
    }
}

/// Whether it is an interpreter, or may be one: a shell between two interpreters is left out of every tree.
fn is_missed(issue: &TargetIssue) -> bool {
    matches!(issue, TargetIssue::Denied { .. } | TargetIssue::Unsupported { .. } | TargetIssue::NoMalloc(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell() -> TargetIssue {
        TargetIssue::NotAnInterpreter { program: "sh".to_owned() }
    }

    fn old() -> TargetIssue {
        TargetIssue::Unsupported { reason: "too old".to_owned() }
    }

    #[test]
    fn of_thousands_that_have_ended_one_is_kept() {
        let mut left_out = LeftOut::default();
        for pid in 1..=3_000 {
            left_out.add(pid, if pid == 7 { old() } else { shell() });
            left_out.end(pid);
        }
        assert_eq!(left_out.list(), [(7, old())], "a shell takes no interpreter's place");
        left_out.add(8, old());
        left_out.end(8);
        assert_eq!(left_out.list(), [(8, old())]);
    }

    #[test]
    fn those_that_will_be_missed_come_first() {
        let mut left_out = LeftOut::default();
        left_out.add(1, shell());
        left_out.add(2, old());
        left_out.add(3, old());
        left_out.remove(3);
        assert_eq!(left_out.list(), [(2, old()), (1, shell())]);
    }
}
