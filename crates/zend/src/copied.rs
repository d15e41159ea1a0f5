//! Stacks that were copied in the process's own context, where it stands still: how to copy them, and what they are.

use std::time::Instant;

use slip_model::{Interner, Outcome, Step};
use slip_remote::{Copied, Memory, PlanRange, ReadError, RemoteAddr, StackPlan};

use crate::bytes::addr_at;
use crate::code::CodeCache;
use crate::frames::Stack;
use crate::process::{Engine, Moment, PhpReading, SampleOptions};

impl Engine {
    /// How its stack is copied. Changes when request memory is found, or found elsewhere.
    pub fn plan(&self) -> StackPlan {
        let mut ranges = Vec::new();
        let places = &self.anchor.places;
        places.ranges(&mut ranges);
        let table = &self.offsets.executor_globals;
        StackPlan {
            ranges: ranges
                .into_iter()
                .map(|range| PlanRange { addr: range.addr, len: range.len, of_thread: false })
                .collect(),
            threads: None,
            current: places.executor_globals.offset(table.current_execute_data as u64),
            indirect: None,
            request: Some(places.proof_place()),
            frame: self.layout.clone(),
            compiled: self.compiled,
            in_registers: true,
        }
    }

    /// Names a stack that was copied by the current plan, `at` that moment.
    ///
    /// # Errors
    ///
    /// As for [`Engine::sample`].
    pub fn name_copied<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        code: &mut CodeCache,
        options: &SampleOptions,
        (copied, at): (&Copied<'_>, Instant),
        out: &mut PhpReading,
    ) -> Result<(), ReadError> {
        self.swap_buffers(&mut code.buffers);
        let result = self
            .name(memory, interner, code, (copied, at))
            .and_then(|moment| self.complete(memory, interner, code, options, moment, out));
        self.swap_buffers(&mut code.buffers);
        result
    }

    /// From now on it is known of each stack what it is made of: [`Engine::steps`].
    pub fn list_steps(&mut self) {
        self.frames.steps = Some(Vec::new());
    }

    /// What the stack that was named last is made of, the outermost first.
    pub fn steps(&self) -> &[Step] {
        self.frames.steps.as_deref().unwrap_or_default()
    }

    fn name<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        code: &mut CodeCache,
        (copied, at): (&Copied<'_>, Instant),
    ) -> Result<Moment, ReadError> {
        let places = &self.anchor.places;
        let bytes = places.bytes(copied.anchor);
        let (globals, head) = (places.globals(&bytes), places.head(&bytes));
        let mut frames = copied.frames.to_vec();
        // Compiled code keeps no instruction, and what it stores may be left from an earlier call: the line is not known. What it
        // calls leaves in the register what was there before.
        self.runs_compiled |= copied.instruction.is_some_and(RemoteAddr::is_null);
        let register = copied.instruction.filter(|at| at.is_null() || !self.runs_compiled);
        // The register first: what is stored is the last instruction that could throw or call.
        let stored = frames.get(self.layout.instruction.clone()).map(<[u8]>::to_vec);
        let tries = [register, None];
        for instruction in &tries[usize::from(register.is_none())..] {
            let opline = match (instruction, &stored) {
                (Some(instruction), _) => instruction.0.to_le_bytes().to_vec(),
                (None, Some(stored)) => stored.clone(),
                (None, None) => Vec::new(),
            };
            if let Some(place) = frames.get_mut(self.layout.instruction.clone()) {
                place.copy_from_slice(&opline);
            }
            let chain = copied.addrs.iter().copied().zip(frames.chunks(self.layout.len));
            let Some(truncated) = self.frames.collect(memory, chain)? else { continue };
            let truncated = truncated || copied.truncated;
            let stored = instruction.and(stored.as_deref()).map(|bytes| addr_at(bytes, 0));
            self.frames.place_by_code(&code.functions, stored);
            let moment = (&globals, head.limit, None);
            let mut named = self.name_frames(memory, interner, code, moment, truncated)?;
            // The instruction at which the caller stands may have been read only now.
            if named.is_none() && self.frames.place_by_code(&code.functions, stored) {
                named = self.name_frames(memory, interner, code, moment, truncated)?;
            }
            if let Some(stack) = named {
                let running = !self.frames.buffers.addrs.is_empty();
                return Ok(Moment {
                    outcome: Outcome::Clean,
                    globals: Some(globals),
                    running,
                    stack,
                    at,
                    io_calls: None,
                    of_one_moment: true,
                });
            }
        }
        Ok(Moment {
            outcome: Outcome::Torn,
            globals: Some(globals),
            running: true,
            stack: Stack::default(),
            at,
            io_calls: None,
            of_one_moment: true,
        })
    }
}
