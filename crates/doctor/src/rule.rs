//! The rules by which drags are found: what each is called, what it means and how it decides.

use crate::{CFG011, CFG012, CFG013, CFG014, CFG015, CFG016, CFG017, CFG018, CFG019};

/// A rule. There is one of each, in [`Rule::ALL`].
#[derive(Debug)]
pub struct Rule {
    /// What it is called: `WAKE003`. It never changes its meaning.
    pub id: &'static str,
    /// In a few words, as a heading.
    pub title: &'static str,
    /// What the drag is, and why it costs time.
    pub means: &'static str,
    /// From which numbers it follows, from which on it is told, and what it is not mistaken for.
    pub decides: &'static str,
    /// What takes it away, in general.
    pub helps: &'static str,
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Rule {}

impl Rule {
    /// All, in the order of their numbers.
    pub const ALL: &'static [&'static Self] = &[
        &BOOT001, &CONN002, &WAKE003, &MEM004, &GIL005, &COW006, &LOOP007, &NPLUS008, &NAGLE009, &QUEUE010,
        &CFG011, &CFG012, &CFG013, &CFG014, &CFG015, &CFG016, &CFG017, &CFG018, &CFG019,
    ];

    /// The one that is called so, in whatever case.
    pub fn named(id: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|rule| rule.id.eq_ignore_ascii_case(id)).copied()
    }
}

/// The same boot in every request.
pub static BOOT001: Rule = Rule {
    id: "BOOT001",
    title: "the same boot in every request",
    means: "PHP begins each request from nothing: the interpreter sets itself up, then the framework loads its classes, reads its \
            configuration and builds its services, the same in every request, before it comes to what the request is about.",
    decides: "Two numbers are added. BOOT, the interpreter's own start of a request, is measured from its begin to the first line of the \
              script. The framework's boot is no event that could be seen from outside: it is estimated from samples of the workers on a \
              CPU, as the share that has a known boot of WordPress, Symfony, Laravel or Drupal, or an autoload.php, on its stack, and is \
              given with its interval of 95 %. It is told from 5 % of a request and half a millisecond on, and not if the samples are too few. What \
              restoring it saves is tried if that is asked for (--trial): one page, by workers of our own, with the extension and without. What that saves \
              is told also where the boot by itself is small: an image made after one request has more in it.",
    helps: "Restoring the booted state instead of making it again (the extension slipstream), or a worker mode of the framework if the \
            application can do with one. Less of it: fewer plugins, a classmap that Composer has optimised, opcache with preloading.",
};

/// Connections that are made again and again.
pub static CONN002: Rule = Rule {
    id: "CONN002",
    title: "connections that are made again and again",
    means: "A worker connects to a server that it has been connected to before: once in each request, or once for each command. Each time \
            costs a round trip, with TLS several, and the server's log-in, on top of what is asked.",
    decides: "Connections that were begun are counted for each server, and the time from there to the first data that is sent on them is \
              measured. One for each call, or one for each request, is told if that takes 2 % of a request or more. Fewer connections than \
              requests are persistent ones, and are not told.",
    helps: "A persistent connection: in the client's configuration, or kept by the extension slipstream. On one machine a connection takes 30 to \
            50 microseconds, so it pays for servers on other machines, for TLS, for logging in, and for requests that are short.",
};

/// Ready to run, without a CPU.
pub static WAKE003: Rule = Rule {
    id: "WAKE003",
    title: "ready to run, without a CPU",
    means: "What a worker waited for has come, an answer as a rule, and the worker does not run, because it gets no CPU. From inside of the \
            program this looks like a slow server or a slow client library; it is neither.",
    decides: "The scheduler tells when a thread is ready and when it runs: the time between is measured and not sampled. It is told from 2 % of \
              a request on. The cause: a CPU quota, if the kernel counts periods in which it held the workers' control groups back, while \
              nobody had the CPU; steal, if the machine's host took CPUs away; else by who had the CPU before the worker got it: somebody with a \
              higher priority, the workers themselves, or another program, but for servers that work for these workers meanwhile. A client library is never the cause: what it computes itself is CODE.",
    helps: "A higher quota, or none; fewer workers than CPUs are there for, or more CPUs; the other program elsewhere, or with no higher priority than the workers.",
};

/// Memory that is mapped and given back again and again.
pub static MEM004: Rule = Rule {
    id: "MEM004",
    title: "memory that is mapped and given back again and again",
    means: "Memory that is given back to the kernel has to be asked for again, zeroed and mapped, page by page, the next time that it is \
            touched. The kernel's work for that is in no profile of the program's own functions.",
    decides: "Time in mmap, munmap, brk, madvise, mremap and mprotect, and in page faults that read no file, is measured; it is told from 8 % \
              of a request, or of a run, on. Start-up and exit are not counted. Where the recording has samples with the kernel's functions, \
              these tell who calls; of a program without an interpreter, its stacks where it calls do. Nothing is kept if it unmaps as often \
              as it maps, in at least every other operation.",
    helps: "Keeping memory instead of giving it back: larger thresholds of the allocator (glibc: MALLOC_TRIM_THRESHOLD_ and \
            MALLOC_MMAP_THRESHOLD_), an allocator that keeps its pages, a buffer that is used again.",
};

/// Waiting for the global interpreter lock.
pub static GIL005: Rule = Rule {
    id: "GIL005",
    title: "waiting for the global interpreter lock",
    means: "Threads of one CPython process compute one at a time. A thread that serves a request waits for another one to let go of the lock, \
            which it does each 5 milliseconds, or when it waits itself.",
    decides: "The time in which a thread is blocked by that lock is measured, and told from 3 % of a request on. Who held it is known from \
              samples if the recording has those of the lock (`--mode gil`, or the sampler from outside), and not guessed otherwise.",
    helps: "Processes in the place of threads, computing in another process, or code that lets go of the lock while it computes.",
};

/// Memory that is no longer shared with the master.
pub static COW006: Rule = Rule {
    id: "COW006",
    title: "memory that is no longer shared with the master",
    means: "Workers that are forked from a master share its memory until one of them writes to it. Then the kernel copies that page for the \
            worker, and each worker pays for what was to be paid for once.",
    decides: "At the end of the watch, each page of a worker's private memory is compared with the master's at the same address (pagemap). Where \
              both have the same one, it is shared; where the master has another one, it was copied since the fork, or came to be there when \
              the worker had given the master's back; where the master has none, it came after the fork and is not counted. Told are 16 MiB \
              and more for a worker on average, if that is a quarter of what it had from its master.",
    helps: "CPython: gc.freeze() before the fork, so that collections do not write to each object; loading before the fork what all workers need.",
};

/// An event loop that is busy while data waits.
pub static LOOP007: Rule = Rule {
    id: "LOOP007",
    title: "an event loop that is busy while data waits",
    means: "An event loop serves many connections in one thread. While one piece of code computes, sleeps or waits for a disk, data that has \
            come for the others waits to be read.",
    decides: "The kernel counts for how long data had come, for a client's connection or a server's, while the loop did something else, and for \
              how long requests waited to be accepted. The longer of both is told from 5 % of a request on, if it is not because the loop had \
              no CPU. What the loop did meanwhile follows from its lines, and from waits that were recorded.",
    helps: "Waiting with await, or in a thread (asyncio.to_thread, run_in_executor); cutting long computations into pieces; more processes.",
};

/// The same question to a server many times in one request.
pub static NPLUS008: Rule = Rule {
    id: "NPLUS008",
    title: "the same question to a server many times in one request",
    means: "One request asks a server again and again, each time waiting for the answer before it asks the next. Each call costs its round \
            trip, however fast the server is.",
    decides: "Calls are counted for each server and command. Ten or more of one command for each request are told if they take 5 % of a request \
              or more, without the time in which the worker had no CPU.",
    helps: "Asking once for all: MGET or a pipeline with Redis, one statement with IN or a join in SQL; keeping answers for the length of a request.",
};

/// Small pieces that wait for an acknowledgement.
pub static NAGLE009: Rule = Rule {
    id: "NAGLE009",
    title: "small pieces that wait for an acknowledgement",
    means: "A question is sent in two pieces without TCP_NODELAY. The kernel keeps the second one back until the first is acknowledged \
            (Nagle's algorithm), and the other side acknowledges late, because it waits for data to send along: 40 milliseconds.",
    decides: "Time between sending and the arrival at a server on this machine is measured for each call. It is told if that takes 38 to 50 \
              milliseconds in many calls of one server, whose own work is short. Of servers on other machines the way cannot be told from their work.",
    helps: "TCP_NODELAY (phpredis, Predis and PHP's tcp_nodelay option of streams set it), or writing the question in one piece.",
};

/// All workers are busy.
pub static QUEUE010: Rule = Rule {
    id: "QUEUE010",
    title: "requests wait because all workers are busy",
    means: "A request has come, and no worker takes it, because each is busy with another one.",
    decides: "The time from when a request could have been accepted until a worker begins is measured. It is told from 5 % of a request on, and \
              only for times in which each worker that was watched was busy. If a worker was idle meanwhile, that is said instead.",
    helps: "More workers if CPU and memory are there for them; else shorter requests: whatever the other findings say is multiplied by this.",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_a_number_of_its_own_and_is_found_by_name() {
        let mut numbers: Vec<&str> = Rule::ALL.iter().map(|rule| &rule.id[rule.id.len() - 3..]).collect();
        assert!(numbers.is_sorted() && numbers.iter().all(|number| number.parse::<u32>().is_ok()));
        numbers.dedup();
        assert_eq!(numbers.len(), Rule::ALL.len());
        for rule in Rule::ALL {
            assert_eq!(Rule::named(&rule.id.to_lowercase()), Some(*rule));
            for text in [rule.title, rule.means, rule.decides, rule.helps] {
                assert!(!text.contains("  "), "{text}");
            }
        }
        assert_eq!(Rule::named("WAKE"), None);
    }
}
