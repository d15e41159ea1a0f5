//! The lines of a budget, and which part of a thread's time belongs to which.

use slip_model::Part;

/// What time is spent on, as a budget tells it: coarser than [`Part`], and with what is no part of a thread's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Line {
    /// A request waits for a worker. Its time, and no worker's.
    Queue,
    /// [`Part::Boot`].
    Boot,
    /// [`Part::Code`].
    Code,
    /// [`Part::Memory`].
    Memory,
    /// [`Part::Connect`].
    Connect,
    /// [`Part::Transfer`] and [`Part::Wait`].
    Wait,
    /// [`Part::Client`].
    Client,
    /// [`Part::Wake`] and [`Part::Preempted`].
    Wake,
    /// [`Part::Lock`].
    Lock,
    /// [`Part::Gil`].
    Gil,
    /// [`Part::Disk`].
    Disk,
    /// [`Part::Sleep`].
    Sleep,
    /// [`Part::Other`].
    Other,
    /// Whatever a worker does for a request whose response has been sent.
    After,
    /// A worker waits for the next request.
    Idle,
    /// Whatever a worker does in no request.
    Between,
    /// Time that was watched and is in none of the others.
    Unknown,
}

impl Line {
    /// All, in the order in which tables have them.
    pub const ALL: [Self; 17] = [
        Self::Queue,
        Self::Boot,
        Self::Code,
        Self::Memory,
        Self::Connect,
        Self::Wait,
        Self::Client,
        Self::Wake,
        Self::Lock,
        Self::Gil,
        Self::Disk,
        Self::Sleep,
        Self::Other,
        Self::After,
        Self::Idle,
        Self::Between,
        Self::Unknown,
    ];

    /// The line of a part, as long as the response has not been sent.
    pub fn of(part: Part) -> Self {
        match part {
            Part::Boot => Self::Boot,
            Part::Code => Self::Code,
            Part::Memory => Self::Memory,
            Part::Connect => Self::Connect,
            Part::Transfer | Part::Wait => Self::Wait,
            Part::Client => Self::Client,
            Part::Wake | Part::Preempted => Self::Wake,
            Part::Lock => Self::Lock,
            Part::Gil => Self::Gil,
            Part::Disk => Self::Disk,
            Part::Sleep => Self::Sleep,
            Part::Other => Self::Other,
        }
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "QUEUE",
            Self::Boot => "BOOT",
            Self::Code => "CODE",
            Self::Memory => "MEM",
            Self::Connect => "CONN",
            Self::Wait => "WAIT",
            Self::Client => "CLIENT",
            Self::Wake => "WAKE",
            Self::Lock => "LOCK",
            Self::Gil => "GIL",
            Self::Disk => "DISK",
            Self::Sleep => "SLEEP",
            Self::Other => "OTHER",
            Self::After => "AFTER",
            Self::Idle => "IDLE",
            Self::Between => "BETWEEN",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// What it means, in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Queue => "until a worker begins with the request",
            Self::Boot => "the interpreter begins the request",
            Self::Code => "on a CPU: the program, its interpreter, the kernel",
            Self::Memory => "getting, giving back and touching memory",
            Self::Connect => "connecting to servers",
            Self::Wait => "asking servers and waiting for their answers",
            Self::Client => "until the client sends the request or takes the response",
            Self::Wake => "ready to run, without a CPU",
            Self::Lock => "until a lock is free",
            Self::Gil => "until the global interpreter lock is free",
            Self::Disk => "until a file system or a disk answers",
            Self::Sleep => "until some time has passed",
            Self::Other => "until something else happens",
            Self::After => "anything after the response was sent",
            Self::Idle => "waiting for the next request",
            Self::Between => "busy, but in no request",
            Self::Unknown => "watched, but in none of these",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_numbers_of_their_places_and_each_part_has_one() {
        for (number, line) in Line::ALL.iter().enumerate() {
            assert_eq!(*line as usize, number);
        }
        let lines = Part::ALL.map(Line::of);
        let none = [Line::Queue, Line::After, Line::Idle, Line::Between, Line::Unknown];
        for line in Line::ALL {
            assert_eq!(lines.contains(&line), !none.contains(&line), "{line:?}");
        }
    }
}
