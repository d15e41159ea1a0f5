//! `bench/report/run`: the size of an hour's recording, what writing it costs, and how fast it is read.

mod hour;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hour::Hour;
use slip_record::file::{Writer, load};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("usage: bench-report FILE [WORKERS] [SECONDS]")?);
    let workers = arguments.next().map_or(Ok(8), |text| text.parse())?;
    let seconds = arguments.next().map_or(Ok(3_600), |text| text.parse())?;

    let mut hour = Hour::new(workers, seconds);
    let mut writer = Writer::create(&path, &Hour::info(), true)?;
    let mut flushes = Vec::new();
    let (mut cpu, mut wall) = (Duration::ZERO, Duration::ZERO);
    while let Some(batch) = hour.next_batch() {
        let (cpu_before, before) = (own_cpu(), Instant::now());
        writer.append(&batch)?;
        let took = own_cpu() - cpu_before;
        cpu += took;
        wall += before.elapsed();
        flushes.push(before.elapsed());
    }
    let before = Instant::now();
    writer.finish(hour.totals())?;
    let finish = before.elapsed();
    drop(writer);
    let count = flushes.len() as f64;
    flushes.sort_unstable();
    let at = |share: f64| flushes[((count - 1.0) * share) as usize].as_secs_f64() * 1e3;
    println!("{workers} workers, {seconds} s, {} samples", hour.totals().samples);
    println!("file            {:8.2} MB", std::fs::metadata(&path)?.len() as f64 / 1e6);
    println!(
        "flush           {:8.3} ms CPU each, {:.3} % of a core",
        cpu.as_secs_f64() * 1e3 / count,
        cpu.as_secs_f64() / seconds as f64 * 100.0
    );
    println!(
        "                {:8.3} ms wall each; median {:.3}, p99 {:.3}, longest {:.3} ms; finish {:.1} ms",
        wall.as_secs_f64() * 1e3 / count,
        at(0.5),
        at(0.99),
        at(1.0),
        finish.as_secs_f64() * 1e3
    );

    let mut rounds = Vec::new();
    for round in 1..=3 {
        let before = Instant::now();
        let loaded = load(&path)?;
        let load_time = before.elapsed();
        let before = Instant::now();
        let summary = slip_report::Summary::of(&loaded.recording);
        let summary_time = before.elapsed();
        println!(
            "round {round}         load {:.3} s, summarise {:.3} s, together {:.3} s ({} requests, {} functions)",
            load_time.as_secs_f64(),
            summary_time.as_secs_f64(),
            (load_time + summary_time).as_secs_f64(),
            loaded.recording.requests.len(),
            summary.functions.len(),
        );
        rounds.push((load_time + summary_time).as_secs_f64());
        if round == 3 {
            for format in slip_report::Format::ALL {
                let before = Instant::now();
                let bytes = slip_report::render(&loaded.recording, format, &slip_report::Options::default())?;
                println!(
                    "{:15} {:8.3} s, {:.2} MB",
                    format.name(),
                    before.elapsed().as_secs_f64(),
                    bytes.len() as f64 / 1e6
                );
            }
        }
        for warning in loaded.warnings {
            println!("warning: {warning}");
        }
    }
    rounds.sort_unstable_by(f64::total_cmp);
    let (size_mb, summarised_s) = (std::fs::metadata(&path)?.len() as f64 / 1e6, rounds[1]);
    println!("result: {size_mb:.1} MB for the hour (bar 20 MB), loaded and summarised in {summarised_s:.2} s (bar 1 s)");
    if size_mb > 20.0 || summarised_s >= 1.0 {
        return Err("does not hold".into());
    }
    Ok(())
}

/// CPU time of this process, user and system.
fn own_cpu() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is large enough and lives for the whole call.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: zeroed at first and filled by the kernel; every bit pattern is a valid `rusage`.
    let usage = unsafe { usage.assume_init() };
    let of = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}
