//! Stacks with what else is known of each moment: calls from C, exceptions, instructions.

use slip_cpython::{Interpreter, Keep, Labels, Look, LookRequest, Point, Version, Which, opcode_name};
use slip_model::{Frame, FrameId, FrameKind, Gil, Interner, Mode, Outcome, StackId, StackReading};
use slip_remote::{LiveProcess, ReadError};

use crate::outside::Options;

/// Reads the threads of one process frame by frame, which tells more than their stacks alone and takes longer.
#[derive(Debug)]
pub(super) struct PointReader {
    request: LookRequest,
    look: Look,
    labels: Labels,
    /// Frames that stand for instructions, by number.
    instructions: Vec<Option<FrameId>>,
    /// Whether each thread of the last look raises an exception or handles one.
    pub(super) has_exception: Vec<bool>,
}

impl PointReader {
    /// A reader, if these options ask for something that stacks alone do not tell.
    pub(super) fn of(options: Options) -> Option<Self> {
        let Options { native, opcodes, without_gc, .. } = options;
        if !native && !opcodes && options.mode != Mode::Exception {
            return None;
        }
        // Threads that do not count are looked at all the same: they are the threads that they were when they count again.
        let (which, keep) = (Which::All, Keep::All);
        Some(Self {
            request: LookRequest { which, keep, native, gc: !without_gc, opcodes, names: true },
            look: Look::default(),
            labels: Labels::default(),
            instructions: vec![None; 256],
            has_exception: Vec::new(),
        })
    }

    /// As [`Interpreter::sample`].
    pub(super) fn read(
        &mut self,
        python: &mut Interpreter,
        memory: &LiveProcess,
        interner: &mut Interner,
        out: &mut Vec<StackReading>,
    ) -> Result<(), ReadError> {
        out.clear();
        self.has_exception.clear();
        if self.labels.are_too_many() {
            self.labels = Labels::default();
            python.forget_codes();
        }
        let result = python.look(memory, interner, &self.request, &mut self.look);
        self.labels.learn(&mut self.look.texts);
        result?;
        let version = python.version();
        for interpreter in &self.look.interpreters {
            for thread in &self.look.threads[interpreter.threads.clone()] {
                let mut points = &self.look.points[thread.points.clone()];
                // Nothing of Python is called from what is outermost.
                while let [inner @ .., Point::Native] = points {
                    points = inner;
                }
                let mut stack = StackId(0);
                for point in points.iter().rev() {
                    let frame = self.labels.frame(interner, *point);
                    stack = interner.push(stack, frame);
                }
                if let Some(Point::Code { opcode, .. }) = points.first()
                    && let Some(frame) = instruction(&mut self.instructions, interner, version, *opcode)
                {
                    stack = interner.push(stack, frame);
                }
                out.push(StackReading {
                    native_tid: thread.native_tid,
                    thread_key: thread.key.0,
                    interpreter: interpreter.id,
                    name: thread.name,
                    gil: if thread.holds_gil { Gil::Holds } else { Gil::Free },
                    outcome: thread.outcome,
                    truncated: thread.truncated && thread.outcome != Outcome::Torn,
                    stack,
                });
                self.has_exception.push(thread.has_exception);
            }
        }
        Ok(())
    }
}

/// What stands for an instruction; `None` for 0, which is none or could not be read.
fn instruction(
    known: &mut [Option<FrameId>],
    interner: &mut Interner,
    version: Version,
    opcode: u8,
) -> Option<FrameId> {
    if opcode == 0 {
        return None;
    }
    let slot = &mut known[usize::from(opcode)];
    Some(*slot.get_or_insert_with(|| {
        let name = match opcode_name(version, opcode) {
            Some(name) => interner.string(&format!("[{name}]")),
            None => interner.string(&format!("[instruction {opcode}]")),
        };
        interner.frame(Frame { kind: FrameKind::Instruction, name, ..Frame::default() })
    }))
}
