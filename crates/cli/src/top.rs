//! `slip top`.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use slip_model::{LiveThread, Mode, ThreadState, Window};
use slip_record::{
    Ending, KernelSampler, OutsideOptions, OutsideSampler, Sampler, Session, SessionError, SessionOptions,
    TargetIssue, TargetSet,
};
use slip_report::clean_json;
use slip_tui::{About, Action, App, Guard, Input, Screen, View, plain, size, wait_for_input};

use crate::args::{TopFormatName, TopOptions, TopSamplerName};
use crate::failure::{self, Failure};
use crate::record::{cannot_listen, listen, target_of, warn_of};
use crate::sampler::status_of;

/// The first picture that says something comes soon, of the little that has been seen by then.
const FIRST_WINDOW_NS: u64 = 300_000_000;

/// How far functions reach back.
const SPAN_NS: u64 = 10_000_000_000;

/// How long `--once` watches unless it is told.
const ONCE_NS: u64 = 2_000_000_000;

/// What may wait to be shown while the terminal takes nothing. Windows that come then are not shown.
const MAX_WAITING: usize = 64;

/// Shows what is going on, or says it once.
pub(crate) fn run(options: &TopOptions) -> Result<(), Failure> {
    if !options.once && !io::stdout().is_terminal() {
        return Err(Failure::new(failure::USAGE, "standard output is no terminal")
            .hint("`--once` prints the tables as text, and with `--format json` for programs"));
    }
    slip_record::use_huge_pages();
    let interval_ns = 1_000_000_000 / u64::from(options.rate);
    let mut sampler = start(options, interval_ns)?;
    let (target, text) = target_of(&options.target, None)?;
    let about = About {
        target: text,
        sampler: sampler.name().to_owned(),
        rate_hz: options.rate,
        cannot_see: cannot_see(options.sampler, sampler.as_ref()),
    };
    let app = App::new(about, view_of(options));
    let duration_ns = options.duration.map(|seconds| Duration::from_secs_f64(seconds).as_nanos() as u64);
    let session_options = SessionOptions {
        interval_ns,
        duration_ns: if options.once { duration_ns.or(Some(ONCE_NS)) } else { duration_ns },
        waits_for_interpreter: false,
    };
    let mut session = Session::new(session_options, TargetSet::find(target)?, sampler.as_mut());
    session.prepare().map_err(|error| match error {
        SessionError::Issue { pid, issue: TargetIssue::NeedsOutside { reason } } => {
            Failure::new(failure::UNSUPPORTED, format!("the kernel cannot sample process {pid}: {reason}"))
                .hint("`--sampler outside` may")
        }
        other => other.into(),
    })?;
    if options.once { once(options, session, app) } else { live(options, session, app) }
}

fn start(options: &TopOptions, interval_ns: u64) -> Result<Box<dyn Sampler>, Failure> {
    let how =
        OutsideOptions { mode: Mode::Wall, keep_query: options.keep_query, ..OutsideOptions::default() };
    Ok(match options.sampler {
        TopSamplerName::Outside => Box::new(OutsideSampler::new(how)),
        TopSamplerName::Kernel => {
            let how = OutsideOptions { without_kernel_stacks: true, ..how };
            Box::new(KernelSampler::start(how, interval_ns).map_err(|error| {
                Failure::new(status_of(&error), error.to_string())
                    .hint("as root it may be allowed; `--sampler outside` needs nothing of the kernel")
            })?)
        }
    })
}

/// What is not seen. Here why a thread waits is looked up for each that is shown.
fn cannot_see(name: TopSamplerName, sampler: &dyn Sampler) -> Vec<String> {
    let mut sentences = sampler.cannot_see();
    if name == TopSamplerName::Outside {
        sentences.retain(|sentence| !sentence.starts_with("why a thread waits"));
    }
    sentences.push("requests of PHP that begin and end between two samples are not counted".to_owned());
    sentences
}

fn view_of(options: &TopOptions) -> View {
    let interval_ns = options.interval.parse::<f64>().map_or(0, |seconds| (seconds * 1e9) as u64);
    let mut view = View::new(interval_ns).filtered_by(options.filter.as_deref().unwrap_or_default());
    if let Some(column) = &options.sort {
        view = view.sorted_by(column);
    }
    view.threads = options.threads;
    let says = |name: &str, what: &dyn Fn(&str) -> bool| std::env::var(name).is_ok_and(|value| what(&value));
    view.has_colour =
        !says("NO_COLOR", &|value| !value.is_empty()) && !says("TERM", &|value| value == "dumb");
    view
}

/// Watches for some time, and prints what was seen.
fn once(options: &TopOptions, mut session: Session<'_>, mut app: App) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    listen(&stop)?;
    let mut seen = Window::default();
    let (ending, duration_ns) = session.watch_windows(&stop, 0, u64::MAX, |window| {
        seen = window;
        // The first one is of a moment, from which CPU time is counted; the next one comes at the end.
        Some(u64::MAX)
    });
    let is_empty = seen.threads.is_empty() && seen.functions.is_empty();
    let torn = seen.torn;
    let text = match options.format {
        TopFormatName::Json => json_of(&app, &seen),
        TopFormatName::Table => {
            app.see(seen);
            plain(&app, options.top as usize)
        }
    };
    warn_of(&session.left_out());
    match ending {
        Ending::Stopped if is_empty => Err(Failure::silent(failure::INTERRUPTED)),
        Ending::TargetsGone if is_empty => Err(ended(duration_ns)),
        _ if is_empty && torn > 0 => {
            Err(failure::no_stack(&format!("no stack could be read: all of {torn} attempts failed"), false))
        }
        _ if is_empty => Err(Failure::new(failure::NO_EVIDENCE, "no sample was taken")
            .hint("watch for longer: `--duration 10`, or at a higher rate: `--rate 997`")),
        other => {
            crate::print(text.as_bytes())?;
            match other {
                Ending::Stopped => Err(Failure::silent(failure::INTERRUPTED)),
                Ending::TargetsGone => Err(ended(duration_ns)),
                Ending::Duration => Ok(()),
            }
        }
    }
}

fn ended(after_ns: u64) -> Failure {
    Failure::new(failure::NO_TARGET, format!("the target ended after {:.1} s", after_ns as f64 / 1e9))
}

fn json_of(app: &App, window: &Window) -> String {
    let state = |state: ThreadState| match state {
        ThreadState::Idle => "idle",
        ThreadState::Running => "running",
        ThreadState::Ready => "ready",
        ThreadState::Blocked(_) => "waiting",
        ThreadState::Unknown => "unknown",
    };
    let thread = |thread: &LiveThread| {
        let waits_for = match thread.state {
            ThreadState::Blocked(reason) => reason,
            _ => None,
        };
        json!({
            "pid": thread.pid, "tid": thread.tid, "title": &*thread.title, "name": &*thread.name,
            "language": thread.language,
            "state": state(thread.state), "waits_for": waits_for, "engine": thread.is_engine,
            "cpu_ns": thread.cpu_ns, "ready_ns": thread.ready_ns,
            "request": thread.request.as_ref().map(|request| json!({
                "method": &*request.method, "uri": &*request.uri, "script": &*request.script,
                "age_ns": request.age_ns,
            })),
            "place": thread.place.as_ref().map(|place| json!({
                "name": &*place.name, "file": &*place.file, "line": place.line, "kind": place.kind,
            })),
        })
    };
    let threads: Vec<Value> = window.threads.iter().map(thread).collect();
    let functions: Vec<Value> = window
        .functions
        .iter()
        .map(|function| {
            json!({
                "name": &*function.name, "file": &*function.file, "first_line": function.first_line,
                "kind": function.kind, "own_ns": function.own_ns, "own_cpu_ns": function.own_cpu_ns,
                "total_ns": function.total_ns,
            })
        })
        .collect();
    let about = app.about();
    let document = json!({
        "schema": "slip.top/1",
        "target": about.target, "sampler": about.sampler, "rate_hz": about.rate_hz,
        "duration_ns": window.span_ns, "samples": window.samples, "torn": window.torn,
        "requests": window.requests, "busy_ns": window.busy_ns,
        "threads": threads, "functions": functions, "cannot_see": about.cannot_see,
    });
    let mut text = clean_json(&serde_json::to_string_pretty(&document).unwrap_or_default()).into_owned();
    text.push('\n');
    text
}

/// What the thread that draws is told.
enum Message {
    Input(Input),
    Window(Box<Window>),
    /// A signal.
    Signal(i32),
    /// Nothing more will come.
    End,
}

/// Why the picture is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// The user wants no more.
    Quit,
    /// Ctrl-C, or a signal.
    Interrupted,
    /// There is no more to be seen.
    Ended,
}

/// Shows what is going on. This thread takes the samples; others wait for keys and signals, and draw.
#[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
fn live(options: &TopOptions, mut session: Session<'_>, app: App) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let interval_ns = Arc::new(AtomicU64::new(app.interval_ns()));
    let (sender, messages) = sync_channel(MAX_WAITING);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT]).map_err(cannot_listen)?;
    let cannot_use = |error| Failure::io("cannot use the terminal".to_owned(), &error);
    let picture = Guard::take().and_then(|guard| Picture::new(app, guard)).map_err(cannot_use)?;
    spawn(&sender, move |sender| {
        for signal in signals.forever() {
            sender.send(Message::Signal(signal)).ok()?;
        }
        Some(())
    });
    spawn(&sender, |sender| {
        loop {
            sender.send(Message::Input(wait_for_input().ok()?)).ok()?;
        }
    });
    let drawing = {
        let (stop, interval_ns) = (Arc::clone(&stop), Arc::clone(&interval_ns));
        thread::spawn(move || {
            let left = draw(picture, &messages, &interval_ns);
            stop.store(true, Ordering::Relaxed);
            left
        })
    };
    let (ending, duration_ns) = session.watch_windows(&stop, FIRST_WINDOW_NS, SPAN_NS, |window| match sender
        .try_send(Message::Window(Box::new(window)))
    {
        Err(TrySendError::Disconnected(_)) => None,
        Ok(()) | Err(TrySendError::Full(_)) => Some(interval_ns.load(Ordering::Relaxed)),
    });
    // It may have ended already.
    let _ = sender.send(Message::End);
    let left = match drawing.join() {
        Ok(left) => left,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    warn_of(&session.left_out());
    match left.map_err(|error| Failure::io("cannot write to the terminal".to_owned(), &error))? {
        Left::Interrupted => Err(Failure::silent(failure::INTERRUPTED)),
        Left::Quit => Ok(()),
        Left::Ended if ending == Ending::TargetsGone && options.duration.is_some() => Err(ended(duration_ns)),
        Left::Ended => {
            if ending == Ending::TargetsGone {
                eprintln!("note: the target ended after {:.1} s", duration_ns as f64 / 1e9);
            }
            Ok(())
        }
    }
}

/// Runs what waits for something in a thread of its own, until nobody listens any more.
fn spawn(
    sender: &SyncSender<Message>,
    work: impl FnOnce(SyncSender<Message>) -> Option<()> + Send + 'static,
) {
    let sender = sender.clone();
    thread::spawn(move || work(sender));
}

/// The picture on the terminal.
struct Picture {
    app: App,
    screen: Screen,
    /// The terminal is what it was when this is gone.
    guard: Option<Guard>,
    /// Of the terminal, in columns and rows.
    size: (u16, u16),
}

impl Picture {
    fn new(app: App, guard: Guard) -> io::Result<Self> {
        Ok(Self { app, screen: Screen::default(), guard: Some(guard), size: size()? })
    }

    /// Gives the terminal back, does something, and takes it again, with whatever is on it by then.
    fn without_terminal(&mut self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.guard = None;
        work()?;
        self.guard = Some(Guard::take()?);
        self.screen.forget();
        self.size = size()?;
        Ok(())
    }

    /// Makes the terminal show it.
    fn write(&mut self) -> io::Result<()> {
        let (width, height) = self.size;
        let bytes = self.screen.frame(&mut self.app, width, height)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }
}

/// Draws whatever comes, until the end.
fn draw(mut picture: Picture, messages: &Receiver<Message>, interval_ns: &AtomicU64) -> io::Result<Left> {
    picture.write()?;
    // We have stopped ourselves: the signal that continues us is not news.
    let mut is_continued = false;
    while let Ok(first) = messages.recv() {
        let mut is_changed = false;
        // All that has come by now is in the next picture.
        for message in std::iter::once(first).chain(messages.try_iter()) {
            let action = match message {
                Message::End => return Ok(Left::Ended),
                Message::Window(window) => {
                    picture.size = size()?;
                    if picture.app.see(*window) { Action::Draw } else { Action::Nothing }
                }
                Message::Input(Input::Key(key)) => picture.app.key(key),
                Message::Input(Input::Resize(columns, rows)) => {
                    picture.size = (columns, rows);
                    Action::Draw
                }
                Message::Signal(SIGTSTP) => Action::Suspend,
                Message::Signal(SIGCONT) if std::mem::take(&mut is_continued) => Action::Nothing,
                Message::Signal(SIGCONT) => {
                    // Whoever had the terminal meanwhile may have changed it.
                    picture.without_terminal(|| Ok(()))?;
                    Action::Draw
                }
                Message::Signal(_) => Action::Interrupt,
            };
            match action {
                Action::Nothing => continue,
                Action::Draw => {}
                Action::Repaint => picture.screen.forget(),
                Action::Interval(ns) => interval_ns.store(ns, Ordering::Relaxed),
                Action::Suspend => {
                    is_continued = true;
                    picture.without_terminal(|| emulate_default_handler(SIGTSTP))?;
                }
                Action::Quit => return Ok(Left::Quit),
                Action::Interrupt => return Ok(Left::Interrupted),
            }
            is_changed = true;
        }
        if is_changed {
            picture.write()?;
        }
    }
    Ok(Left::Ended)
}
