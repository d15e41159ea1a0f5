//! The times of a thread that is looked at now and then.
//!
//! What the scheduler has counted of a blocked thread is exact: for how long it has had a CPU, and for how long it was ready and
//! had none. So between two looks at which it was blocked, the rest of the time is what it was blocked for, exactly too. Only what
//! of that belongs to which of its waits has to be guessed: half to what it was in at the one look, half to what it was in at the
//! other. Looks come at times of their own, so over many waits the halves are right.
//!
//! A look at which it runs says nothing but that: the scheduler counts at its ticks and when the thread leaves its CPU.

use slip_model::{Part, PartTimes};

use crate::budget::{ServedTimes, ThreadTimes};

/// What the scheduler has counted of a thread so far: the three numbers of its `schedstat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// On a CPU, nanoseconds.
    pub(super) ran_ns: u64,
    /// Ready to run, without a CPU, nanoseconds.
    pub(super) ready_ns: u64,
    /// How often it was given one.
    pub(super) turns: u64,
}

/// What a thread is found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It runs, or could.
    Runs,
    /// It waits for a request.
    Idle,
    /// It is blocked by this, and by the server of this number.
    Blocked(Part, Option<u32>),
}

/// A look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) now_ns: u64,
    pub(super) counted: Counted,
    pub(super) found: Found,
    /// A number that the request has for itself; 0 if it is not known.
    pub(super) request: u64,
}

/// Most requests that are told apart between two looks at which a thread is blocked. Later ones are one.
const MAX_TURNS: usize = 1_024;

/// All of a thread's time since it was first known what it does.
#[derive(Debug)]
pub(super) struct Account {
    /// Without what is open.
    times: ThreadTimes,
    /// What it does is known from its first wait on, and not from the first one for a request.
    is_worker: bool,
    /// The last look at which it was blocked: up to here all is accounted for. `None` before the first.
    since: Option<Look>,
    /// Since then it was seen to run: first at this time.
    ran_at_ns: Option<u64>,
    /// The last look.
    last: Look,
    /// The number of the request that it is in; 0 if it is not known.
    request: u64,
    /// The number that was there when it was idle last: that of the request before, as long as it stays.
    stale: u64,
    /// Since it was blocked last, another request has begun at about these times.
    turns: Vec<u64>,
    /// When the open request began; `None` if it is not known.
    begin_ns: Option<u64>,
    /// What the open request has taken so far.
    current: PartTimes,
}

/// The time from one blocked look to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Between {
    /// Blocked as at the first.
    head_ns: u64,
    ran_ns: u64,
    ready_ns: u64,
    /// Blocked, between looks at which it ran.
    unseen_ns: u64,
    /// Blocked as at the second.
    tail_ns: u64,
}

impl Account {
    /// Of thread `tid`. Of one that `is_worker` it is known that it serves requests and nothing else.
    pub(super) fn new(pid: u32, tid: u32, is_worker: bool) -> Self {
        let mut times = ThreadTimes { pid, tid, is_unknown: true, ..ThreadTimes::default() };
        for (number, time) in (0..).zip(&mut times.endpoints) {
            time.endpoint = number;
        }
        let last = Look { now_ns: 0, counted: Counted::default(), found: Found::Runs, request: 0 };
        Self {
            times,
            is_worker,
            since: None,
            ran_at_ns: None,
            last,
            request: 0,
            stale: 0,
            turns: Vec::new(),
            begin_ns: None,
            current: PartTimes::default(),
        }
    }

    /// Goes on to this look. Returns requests that have ended since the last one at which the thread was blocked.
    pub(super) fn see(&mut self, look: Look) -> Vec<ServedTimes> {
        let before = std::mem::replace(&mut self.last, look);
        self.note_request(&before, &look);
        let Some(since) = self.since else {
            if look.found == Found::Idle || self.is_worker && look.found != Found::Runs {
                self.times.is_unknown = false;
                self.times.first_ns = look.now_ns;
                self.since = Some(look);
            }
            self.turns.clear();
            return Vec::new();
        };
        if look.found == Found::Runs {
            self.ran_at_ns.get_or_insert(look.now_ns);
            return Vec::new();
        }
        let ran_at_ns = self.ran_at_ns.take();
        let between = Between::of(&since, ran_at_ns.map(|at| (at, before.now_ns)), &look);
        self.since = Some(look);
        self.account(&since, between, ran_at_ns.is_some() && since.counted != look.counted, &look)
    }

    fn note_request(&mut self, before: &Look, look: &Look) {
        if look.found == Found::Idle {
            (self.stale, self.request) = (look.request, 0);
        } else if look.request != 0 && look.request != self.stale {
            if self.request != 0 && self.request != look.request && self.turns.len() < MAX_TURNS {
                self.turns.push(before.now_ns.midpoint(look.now_ns));
            }
            self.request = look.request;
        }
    }

    fn account(&mut self, since: &Look, between: Between, was_seen: bool, look: &Look) -> Vec<ServedTimes> {
        let (mut served, turns) = (Vec::new(), std::mem::take(&mut self.turns));
        let Between { head_ns, ran_ns, ready_ns, unseen_ns, tail_ns } = between;
        match (since.found, look.found) {
            (Found::Idle, Found::Idle) if !was_seen => {
                // A request that was missed, if it ran. What of its waits belongs to this one is not known.
                add(&mut self.times.serving, Part::Code, ran_ns);
                add(&mut self.times.serving, Part::Wake, ready_ns);
                self.times.idle_ns += head_ns + unseen_ns + tail_ns;
                self.times.crowded += u64::from(since.counted != look.counted);
                return served;
            }
            (Found::Idle, _) => {
                self.times.idle_ns += head_ns;
                self.begin_ns = Some(since.now_ns + head_ns);
            }
            (found, _) => self.wait(found, head_ns),
        }
        if let Found::Blocked(Part::Wait, Some(endpoint)) = since.found
            && let Some(time) = self.times.endpoints.get_mut(endpoint as usize)
        {
            time.wake_ns += ready_ns;
        }
        // Each request has its share of the time between the two waits, as it took of it.
        let unseen = match (since.found, look.found) {
            (Found::Idle, Found::Idle) => Found::Blocked(Part::Other, None),
            (found, Found::Idle) | (_, found) => found,
        };
        let (begin_ns, all) = (since.now_ns + head_ns, [ran_ns, ready_ns, unseen_ns]);
        let all_ns = ran_ns + ready_ns + unseen_ns;
        let mut done = [0; 3];
        let ends = turns.into_iter().map(Some).chain([None]);
        for turn_ns in ends {
            let until_ns = turn_ns.map_or(all_ns, |at| at.saturating_sub(begin_ns).min(all_ns));
            let now_done = all.map(|ns| share(ns, until_ns, all_ns));
            add(&mut self.current, Part::Code, now_done[0] - done[0]);
            add(&mut self.current, Part::Wake, now_done[1] - done[1]);
            self.wait(unseen, now_done[2] - done[2]);
            done = now_done;
            if turn_ns.is_some() {
                let turn_ns = begin_ns + done.iter().sum::<u64>();
                served.extend(self.end(turn_ns));
                self.begin_ns = Some(turn_ns);
            }
        }
        if look.found == Found::Idle {
            self.times.idle_ns += tail_ns;
            served.extend(self.end(look.now_ns - tail_ns));
        } else {
            self.wait(look.found, tail_ns);
        }
        served
    }

    fn wait(&mut self, found: Found, ns: u64) {
        let Found::Blocked(part, endpoint) = found else { return };
        add(&mut self.current, part, ns);
        if let Some(time) = endpoint.and_then(|number| self.times.endpoints.get_mut(number as usize)) {
            match part {
                Part::Wait => time.wait_ns += ns,
                Part::Connect => time.connect_ns += ns,
                _ => {}
            }
        }
    }

    /// Ends the open request.
    fn end(&mut self, end_ns: u64) -> Option<ServedTimes> {
        let serving = std::mem::take(&mut self.current);
        self.times.serving.add(&serving);
        let begin_ns = self.begin_ns.take()?;
        self.times.ended += 1;
        Some(ServedTimes {
            pid: self.times.pid,
            tid: self.times.tid,
            is_shared: false,
            is_started: true,
            is_run: false,
            queued_ns: begin_ns,
            begin_ns,
            response_ns: end_ns,
            end_ns,
            serving,
            after: PartTimes::default(),
        })
    }

    /// As it is now, at the last look. What the scheduler has not counted yet of a thread that runs belongs to the code.
    pub(super) fn times(&self) -> ThreadTimes {
        let mut times = self.times.clone();
        let Some(since) = self.since else { return times };
        times.now_ns = self.last.now_ns;
        let mut current = self.current;
        let mut is_open = since.found != Found::Idle;
        if let Some(ran_at_ns) = self.ran_at_ns {
            let between = Between::of(&since, Some((ran_at_ns, self.last.now_ns)), &self.last);
            add(&mut current, Part::Code, between.ran_ns + between.unseen_ns + between.tail_ns);
            add(&mut current, Part::Wake, between.ready_ns);
            match since.found {
                Found::Blocked(part, endpoint) => {
                    add(&mut current, part, between.head_ns);
                    let time = endpoint.and_then(|number| times.endpoints.get_mut(number as usize));
                    if let Some(time) = time.filter(|_| part == Part::Wait) {
                        time.wait_ns += between.head_ns;
                    }
                }
                _ => times.idle_ns += between.head_ns,
            }
            is_open = true;
        }
        times.serving.add(&current);
        times.opened = u32::from(is_open);
        times
    }
}

impl Between {
    /// From the look `since` to the look `now`, with the times of the first and the last look between them at which it ran.
    fn of(since: &Look, ran: Option<(u64, u64)>, now: &Look) -> Self {
        let all_ns = now.now_ns.saturating_sub(since.now_ns);
        let ran_ns = now.counted.ran_ns.saturating_sub(since.counted.ran_ns).min(all_ns);
        let ready_ns = now.counted.ready_ns.saturating_sub(since.counted.ready_ns).min(all_ns - ran_ns);
        let blocked_ns = all_ns - ran_ns - ready_ns;
        let (mut head_ns, mut tail_ns) = (blocked_ns / 2, blocked_ns - blocked_ns / 2);
        if now.counted == since.counted {
            // The same wait. Of what it is may be known better now.
            (head_ns, tail_ns) = (0, blocked_ns);
        } else if let Some((first_ns, last_ns)) = ran {
            head_ns = head_ns.min(first_ns.saturating_sub(since.now_ns));
            tail_ns = tail_ns.min(now.now_ns.saturating_sub(last_ns));
        }
        Self { head_ns, ran_ns, ready_ns, unseen_ns: blocked_ns - head_ns - tail_ns, tail_ns }
    }
}

/// What belongs to the first `until` of `all`.
fn share(ns: u64, until: u64, all: u64) -> u64 {
    let share = (u128::from(ns) * u128::from(until)).checked_div(all.into()).unwrap_or_default();
    u64::try_from(share).unwrap_or(ns)
}

fn add(times: &mut PartTimes, part: Part, ns: u64) {
    let sum = &mut times.0[part as usize];
    *sum = sum.saturating_add(ns);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WAIT: Found = Found::Blocked(Part::Wait, Some(2));
    const SLEEP: Found = Found::Blocked(Part::Sleep, None);

    fn look(now_ns: u64, ran_ns: u64, ready_ns: u64, found: Found) -> Look {
        // It has had a CPU if anything of that has grown.
        let counted = Counted { ran_ns, ready_ns, turns: ran_ns + ready_ns };
        Look { now_ns, counted, found, request: 0 }
    }

    fn see_one(account: &mut Account, look: Look) -> ServedTimes {
        let [served] = account.see(look)[..] else { panic!("not one request") };
        served
    }

    fn total_ns(times: &ThreadTimes) -> u64 {
        times.idle_ns + times.serving.total_ns()
    }

    #[test]
    fn a_request_is_the_time_between_two_looks_at_which_it_is_idle() {
        let mut account = Account::new(7, 7, false);
        let looks = [
            look(5, 0, 0, WAIT),
            // From here on it is known.
            look(10, 0, 0, Found::Idle),
            look(20, 0, 0, Found::Idle),
            // 6 of 10 blocked: 3 before the request, 3 in the wait.
            look(30, 3, 1, WAIT),
            look(40, 3, 1, WAIT),
            look(50, 3, 1, Found::Runs),
            // 12 of 20: 6 each.
            look(60, 10, 2, SLEEP),
        ];
        assert!(looks.map(|look| account.see(look)).concat().is_empty());
        assert_eq!(account.times().opened, 1);
        let served = see_one(&mut account, look(70, 12, 2, Found::Idle));
        assert_eq!((served.begin_ns, served.end_ns), (23, 66));
        let parts = [Part::Code, Part::Wake, Part::Wait, Part::Sleep].map(|part| served.serving.of(part));
        assert_eq!(parts, [12, 2, 3 + 10 + 6, 6 + 4]);
        assert_eq!(served.serving.total_ns(), served.end_ns - served.begin_ns);
        let times = account.times();
        assert_eq!((times.idle_ns, times.ended, times.opened), (10 + 3 + 4, 1, 0));
        assert_eq!((times.endpoints[2].wait_ns, times.endpoints[2].wake_ns), (19, 1));
        assert_eq!(total_ns(&times), times.now_ns - times.first_ns);
    }

    #[test]
    fn what_was_missed_between_two_looks_is_served_without_a_request() {
        let mut account = Account::new(7, 7, false);
        account.see(look(10, 0, 0, Found::Idle));
        assert!(account.see(look(20, 3, 1, Found::Idle)).is_empty());
        let times = account.times();
        assert_eq!((times.idle_ns, times.serving.of(Part::Code), times.serving.of(Part::Wake)), (6, 3, 1));
        assert_eq!((times.ended, times.crowded), (0, 1));
    }

    #[test]
    fn a_thread_that_is_seen_to_run_between_two_idle_looks_has_served_a_request() {
        let mut account = Account::new(7, 7, false);
        account.see(look(10, 0, 0, Found::Idle));
        account.see(look(20, 0, 0, Found::Runs));
        account.see(look(40, 9, 0, Found::Runs));
        // 10 before it was seen, 10 after, and 11 of 31 between these looks.
        let served = see_one(&mut account, look(50, 9, 0, Found::Idle));
        assert_eq!((served.begin_ns, served.end_ns), (20, 40));
        assert_eq!((served.serving.of(Part::Code), served.serving.of(Part::Other)), (9, 11));
    }

    #[test]
    fn a_wait_that_is_known_only_later_is_of_one_kind() {
        let mut account = Account::new(7, 7, false);
        account.see(look(10, 0, 0, Found::Idle));
        account.see(look(20, 2, 0, Found::Blocked(Part::Other, None)));
        account.see(look(30, 2, 0, WAIT));
        assert_eq!(account.times().serving.of(Part::Wait), 10);
        assert_eq!(account.times().serving.of(Part::Other), 4);
    }

    #[test]
    fn a_worker_is_known_from_its_first_wait_on_and_its_first_request_is_not_told() {
        let mut account = Account::new(7, 7, true);
        account.see(look(10, 5, 0, Found::Runs));
        assert!(account.times().is_unknown);
        account.see(look(20, 9, 0, WAIT));
        assert!(!account.times().is_unknown);
        assert!(account.see(look(30, 9, 0, WAIT)).is_empty());
        assert!(account.see(look(41, 10, 0, Found::Idle)).is_empty());
        let times = account.times();
        assert_eq!((times.ended, times.serving.of(Part::Wait), times.first_ns), (0, 15, 20));
    }

    #[test]
    fn requests_without_a_pause_between_them_are_told_apart_by_their_numbers() {
        let mut account = Account::new(7, 7, false);
        let number = |request, look| Look { request, ..look };
        // The number of the one before is there until the next one has its own.
        let looks = [
            number(1, look(10, 0, 0, Found::Idle)),
            number(1, look(20, 0, 0, Found::Runs)),
            number(2, look(30, 0, 0, Found::Runs)),
            number(0, look(40, 0, 0, Found::Runs)),
            number(3, look(50, 0, 0, Found::Runs)),
        ];
        assert!(looks.map(|look| account.see(look)).concat().is_empty());
        // 40 of 50 on a CPU, 5 before these and 5 after.
        let served = account.see(number(4, look(60, 40, 0, WAIT)));
        let spans: Vec<_> = served.iter().map(|served| (served.begin_ns, served.end_ns)).collect();
        assert_eq!(spans, [(15, 45), (45, 55)]);
        assert_eq!(served[0].serving.of(Part::Code), 30);
        let last = see_one(&mut account, number(4, look(70, 40, 0, Found::Idle)));
        assert_eq!((last.begin_ns, last.end_ns, last.serving.of(Part::Wait)), (55, 60, 5));
    }

    fn any_found() -> impl Strategy<Value = Found> {
        prop_oneof![Just(Found::Runs), Just(Found::Idle), Just(WAIT), Just(SLEEP)]
    }

    proptest! {
        #[test]
        fn any_looks_add_up(
            steps in prop::collection::vec((0_u64..1_000, 0_u64..1_500, 0_u64..300, any_found(), 0_u64..4), 0..60),
            is_worker in any::<bool>(),
        ) {
            let mut account = Account::new(7, 7, is_worker);
            let (mut now, mut ran, mut ready) = (1_000, 0, 0);
            let mut served_ns = 0;
            for (after, more_ran, more_ready, found, request) in steps {
                // The scheduler may say more than our clock.
                (now, ran, ready) = (now + after, ran + more_ran, ready + more_ready);
                for served in account.see(Look { request, ..look(now, ran, ready, found) }) {
                    prop_assert_eq!(served.serving.total_ns(), served.end_ns - served.begin_ns);
                    served_ns += served.serving.total_ns();
                }
                let times = account.times();
                prop_assert_eq!(total_ns(&times), times.now_ns - times.first_ns);
                prop_assert!(served_ns <= times.serving.total_ns());
            }
        }
    }
}
