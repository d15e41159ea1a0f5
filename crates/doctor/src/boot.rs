//! How much of the code is the application's own boot, by samples: an estimate beside the lines, which are measured.

use std::collections::HashMap;

use slip_model::{Budget, Frame, FrameKind, Interner, Language, Mode, Recording, StackId, State};

/// Fewer samples say nothing: with 100, half of them in the boot, the interval is 19 % wide.
const MIN_SAMPLES: u64 = 100;

/// Of a normal distribution: 95 % lies within so many standard deviations of its mean.
const DEVIATIONS: f64 = 1.959_964;

/// What the code of a file is called that is in no function: by what has loaded it.
const OF_FILE: [&str; 5] = ["{main}", "include", "include_once", "require", "require_once"];

/// What a framework runs before it comes to the request: a sample is of the boot if one of these is on its stack. All of them have
/// returned, or never begun, when the request is handled.
struct Boot {
    framework: &'static str,
    /// Ends of the paths of files whose own code, outside of functions, is the boot, with all that it includes and calls.
    files: &'static [&'static str],
    functions: &'static [&'static str],
}

const BOOTS: [Boot; 5] = [
    Boot { framework: "WordPress", files: &["/wp-load.php"], functions: &[] },
    Boot {
        framework: "Symfony",
        files: &[],
        functions: &[
            "Symfony\\Component\\HttpKernel\\Kernel::boot",
            "Symfony\\Component\\HttpKernel\\Kernel::preBoot",
        ],
    },
    Boot {
        framework: "Laravel",
        files: &["/bootstrap/app.php"],
        functions: &["Illuminate\\Foundation\\Http\\Kernel::bootstrap"],
    },
    Boot {
        framework: "Drupal",
        files: &[],
        functions: &["Drupal\\Core\\DrupalKernel::boot", "Drupal\\Core\\DrupalKernel::preHandle"],
    },
    // Composer's, or one that is written by hand: classes that are loaded later are not below it.
    Boot { framework: "autoload.php", files: &["/autoload.php"], functions: &[] },
];

/// What samples say of the boot of PHP's applications. It is part of [`Line::Code`](crate::Line::Code), and in no line of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootSamples {
    /// Samples of a worker on a CPU that runs code of the program, in a request whose response was not sent yet.
    pub samples: u64,
    /// Those among them in the boot.
    pub boot: u64,
    /// Whose boot was seen.
    pub frameworks: Vec<&'static str>,
}

impl BootSamples {
    /// `None` without such samples, or if there are enough and none of the boots that we know was seen: another framework's may have been.
    pub(crate) fn of(recording: &Recording) -> Option<Self> {
        let unbiased = matches!(recording.info.mode, Mode::Wall | Mode::Cpu);
        let budget = recording.budget.as_ref().filter(|_| unbiased)?;
        let is_php = |thread: &slip_model::Thread| {
            let process = recording.processes.get(thread.process.index());
            process
                .filter(|process| process.language == Language::Php)
                .map(|process| (process.pid, thread.tid))
        };
        let serving = serving(budget);
        let spans: Vec<Option<&Vec<(u64, u64)>>> =
            recording.threads.iter().map(|thread| serving.get(&is_php(thread)?)).collect();
        let boots = boots_of_stacks(&recording.interner);
        let mut found = Self { samples: 0, boot: 0, frameworks: Vec::new() };
        let mut seen = [false; BOOTS.len()];
        for sample in recording.samples() {
            let is_code = sample.state.has(State::ON_CPU)
                && ![State::IDLE, State::ENGINE, State::TRUNCATED]
                    .iter()
                    .any(|state| sample.state.has(*state));
            let spans = spans.get(sample.thread.index()).copied().flatten();
            if !is_code || !spans.is_some_and(|spans| is_in(spans, sample.time_ns)) {
                continue;
            }
            found.samples += 1;
            if let Some(boot) = boots.get(sample.stack.index()).copied().flatten() {
                found.boot += 1;
                seen[boot] = true;
            }
        }
        found.frameworks =
            BOOTS.iter().zip(seen).filter(|(_, seen)| *seen).map(|(boot, _)| boot.framework).collect();
        (found.samples > 0 && (found.boot > 0 || !found.is_enough())).then_some(found)
    }

    /// Whether a share can be told.
    pub fn is_enough(&self) -> bool {
        self.samples >= MIN_SAMPLES
    }

    /// So many have to be there.
    pub fn min_samples() -> u64 {
        MIN_SAMPLES
    }

    /// The share of the boot in tenths of a per cent, and between which two it lies with a confidence of 95 %, by Wilson's interval;
    /// `None` if there are too few samples.
    pub fn share(&self) -> Option<(u64, [u64; 2])> {
        if !self.is_enough() {
            return None;
        }
        let (count, boot) = (self.samples as f64, self.boot.min(self.samples) as f64);
        let (share, square) = (boot / count, DEVIATIONS * DEVIATIONS);
        let middle = (share + square / (2.0 * count)) / (1.0 + square / count);
        let variance = share * (1.0 - share) / count + square / (4.0 * count * count);
        let half = DEVIATIONS * variance.sqrt() / (1.0 + square / count);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 0 and 1000"
        )]
        let tenths = |share: f64| (share.clamp(0.0, 1.0) * 1_000.0).round() as u64;
        Some((tenths(share), [tenths(middle - half), tenths(middle + half)]))
    }
}

/// When each worker, by pid and thread, served a request and had not sent its response, in order.
fn serving(budget: &Budget) -> HashMap<(u32, u32), Vec<(u64, u64)>> {
    let mut spans: HashMap<(u32, u32), Vec<(u64, u64)>> = HashMap::new();
    for request in &budget.requests {
        if let Some(worker) = budget.workers.get(request.worker as usize) {
            spans.entry((worker.pid, worker.tid)).or_default().push((request.begin_ns, request.response_ns));
        }
    }
    spans.values_mut().for_each(|spans| spans.sort_unstable());
    spans
}

fn is_in(spans: &[(u64, u64)], time_ns: u64) -> bool {
    let after = spans.partition_point(|(begin_ns, _)| *begin_ns <= time_ns);
    after.checked_sub(1).and_then(|at| spans.get(at)).is_some_and(|(_, end_ns)| time_ns < *end_ns)
}

/// By number of the stack: in whose boot it is, by place in [`BOOTS`]. The outermost counts: WordPress loads plugins that have an
/// `autoload.php` of their own.
fn boots_of_stacks(interner: &Interner) -> Vec<Option<usize>> {
    let (_, frames, stacks) = interner.sizes();
    let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    let of_frames: Vec<Option<usize>> = (0..frames)
        .map(|at| {
            let frame = interner.frame_at(slip_model::FrameId(number(at)));
            BOOTS.iter().position(|boot| boot.begins_with(interner, frame))
        })
        .collect();
    let mut of_stacks: Vec<Option<usize>> = Vec::with_capacity(stacks);
    for at in 0..stacks {
        // A parent is always older.
        let found = interner.node(StackId(number(at))).and_then(|node| {
            let parent = of_stacks.get(node.parent.index()).copied().flatten();
            parent.or_else(|| of_frames.get(node.frame.index()).copied().flatten())
        });
        of_stacks.push(found);
    }
    of_stacks
}

impl Boot {
    fn begins_with(&self, interner: &Interner, frame: Frame) -> bool {
        let name = interner.text(frame.name);
        if frame.kind != FrameKind::Php {
            false
        } else if OF_FILE.contains(&name) {
            let file = interner.text(frame.file);
            self.files.iter().any(|end| file.ends_with(end))
        } else {
            self.functions.contains(&name)
        }
    }
}

#[cfg(test)]
mod tests {
    use slip_model::{
        FrameId, Process, ProcessId, RecordingInfo, Sample, SampleBlock, ServedRequest, Thread, ThreadId,
        Worker,
    };

    use super::*;

    const SERVED: u64 = 50;

    /// Functions with their files, outermost first.
    type Frames<'a> = &'a [(&'a str, &'a str)];

    /// A recording of a worker of PHP that serves one request until 100 and has sent its response at 90, and of one of Python.
    fn recording() -> Recording {
        let php = Process { pid: 7, language: Language::Php, ..Process::default() };
        let python = Process { id: ProcessId(1), pid: 8, ..Process::default() };
        let thread =
            |at: u32| Thread { id: ThreadId(at), process: ProcessId(at), tid: 7 + at, ..Thread::default() };
        let worker = |pid| Worker { pid, tid: pid, ..Worker::default() };
        let request = |worker| ServedRequest {
            worker,
            begin_ns: 10,
            response_ns: 90,
            end_ns: 100,
            ..ServedRequest::default()
        };
        let budget = Budget {
            workers: vec![worker(7), worker(8)],
            requests: vec![request(0), request(1)],
            ..Budget::default()
        };
        Recording {
            budget: Some(budget),
            processes: vec![php, python],
            threads: vec![thread(0), thread(1)],
            ..Recording::default()
        }
    }

    /// A stack of these.
    fn stack(recording: &mut Recording, frames: Frames<'_>) -> StackId {
        let interner = &mut recording.interner;
        let frames: Vec<FrameId> = frames
            .iter()
            .rev()
            .map(|(name, file)| {
                let (name, file) = (interner.string(name), interner.string(file));
                interner.frame(Frame { kind: FrameKind::Php, name, file, ..Frame::default() })
            })
            .collect();
        interner.stack(&frames)
    }

    fn add(recording: &mut Recording, count: u64, sample: Sample) {
        let mut block = SampleBlock::default();
        (0..count).for_each(|_| block.push(sample));
        recording.blocks.push(block);
    }

    fn on_cpu(stack: StackId) -> Sample {
        Sample { time_ns: SERVED, state: State::ON_CPU, stack, ..Sample::default() }
    }

    const SETTINGS: [(&str, &str); 3] = [
        ("{main}", "/www/index.php"),
        ("require_once", "/www/wp-load.php"),
        ("require", "/www/wp-settings.php"),
    ];
    const TEMPLATE: [(&str, &str); 2] =
        [("{main}", "/www/index.php"), ("wp", "/www/wp-includes/functions.php")];

    #[test]
    fn what_is_below_a_boot_is_of_it() {
        let boot = "Symfony\\Component\\HttpKernel\\Kernel::boot";
        let cases: [(Frames<'_>, &[&str]); 6] = [
            (&SETTINGS, &["WordPress"]),
            (&[SETTINGS[0], SETTINGS[1], ("include", "/www/plugin/autoload.php")], &["WordPress"]),
            (&[("{main}", "/a/index.php"), (boot, "/a/Kernel.php"), ("f", "/a/f.php")], &["Symfony"]),
            (&[("{main}", "/a/index.php"), ("require", "/a/vendor/autoload.php")], &["autoload.php"]),
            // A function of that file is called by whoever needs it.
            (&[("{main}", "/a/index.php"), ("load", "/a/vendor/autoload.php")], &[]),
            (&TEMPLATE, &[]),
        ];
        for (frames, frameworks) in cases {
            let mut recording = recording();
            let stack = stack(&mut recording, frames);
            add(&mut recording, 10, on_cpu(stack));
            let found = BootSamples::of(&recording).unwrap();
            assert_eq!(
                (found.boot > 0, &*found.frameworks),
                (!frameworks.is_empty(), frameworks),
                "{frames:?}"
            );
            assert_eq!((found.samples, found.share()), (10, None));
        }
    }

    #[test]
    fn only_code_of_requests_before_their_response_counts() {
        let mut recording = recording();
        let (settings, template) = (stack(&mut recording, &SETTINGS), stack(&mut recording, &TEMPLATE));
        add(&mut recording, 30, on_cpu(settings));
        add(&mut recording, 90, on_cpu(template));
        let counted = Some(BootSamples { samples: 120, boot: 30, frameworks: vec!["WordPress"] });
        assert_eq!(BootSamples::of(&recording), counted);
        let sample = on_cpu(settings);
        let states = [State::ENGINE, State::IDLE, State::TRUNCATED].map(|state| sample.state.with(state));
        let others = [
            Sample { time_ns: 9, ..sample },
            Sample { time_ns: 90, ..sample },
            Sample { thread: ThreadId(1), ..sample },
            Sample { thread: ThreadId(9), ..sample },
            Sample { state: State::default(), ..sample },
        ];
        for other in others.into_iter().chain(states.map(|state| Sample { state, ..sample })) {
            add(&mut recording, 100, other);
        }
        assert_eq!(BootSamples::of(&recording), counted);
        // What these modes leave out would be missing.
        recording.info = RecordingInfo { mode: Mode::Exception, ..RecordingInfo::default() };
        assert_eq!(BootSamples::of(&recording), None);
    }

    #[test]
    fn nothing_is_said_of_frameworks_that_are_not_known() {
        let mut recording = recording();
        assert_eq!(BootSamples::of(&recording), None);
        let template = stack(&mut recording, &TEMPLATE);
        add(&mut recording, MIN_SAMPLES - 1, on_cpu(template));
        assert!(BootSamples::of(&recording).is_some_and(|found| found.share().is_none()));
        add(&mut recording, 1, on_cpu(template));
        assert_eq!(BootSamples::of(&recording), None);
    }

    #[test]
    fn intervals_are_wilson_s() {
        let share = |boot, samples| BootSamples { samples, boot, frameworks: Vec::new() }.share();
        assert_eq!(share(30, 120), Some((250, [181, 334])));
        assert_eq!((share(0, 100), share(100, 100)), (Some((0, [0, 37])), Some((1_000, [963, 1_000]))));
        assert_eq!(share(50, 99), None);
        // Of a file that contradicts itself.
        assert_eq!(share(u64::MAX, 100), share(100, 100));
    }
}
