//! All that is tested of budgets, kept at system calls.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]
#![allow(
    clippy::duplicate_mod,
    reason = "each of these has what it shares with the others, as if it were alone"
)]

#[path = "budget_of_blocking.rs"]
mod blocking;
#[path = "budget_of_cpu.rs"]
mod cpu;
#[path = "budget_of_listeners.rs"]
mod listeners;
#[path = "budget_of_loops.rs"]
mod loops;
#[path = "budget_of_python.rs"]
mod python;
#[path = "budget_of_requests.rs"]
mod requests;
#[path = "budget_of_servers.rs"]
mod servers;
