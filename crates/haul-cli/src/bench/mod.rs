//! `haul bench`: measures the speed of each checksum, and its cost relative to reading.
//!
//! Main path: [`args`] resolves the options, [`file`] creates or opens the file, and each algorithm
//! is measured in memory ([`memory`]) and on the file ([`io`], by the passes of [`pass`]). The
//! figures are printed as tables ([`table`]) or JSON ([`figure`]).

mod args;
mod error;
mod figure;
mod file;
mod io;
mod memory;
mod pass;
mod table;

use crate::console;
use args::{Args, Settings};
use error::BenchError;
use figure::{DataLocation, Measurement, Method};
use file::TestFile;
use haul_model::format_size;
use haul_sys::process::cpu_count;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Runs the command. The exit status is 0, or 1 if the measurement or its output failed.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let settings = match console::typed::<Args>("haul bench", args, 1) {
        Ok(args) => args.resolve(),
        Err(status) => return status,
    };
    match bench(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(BenchError::Output(error)) => ExitCode::from(console::unwritten("haul bench", &error, 1)),
        Err(error) => {
            eprintln!("haul bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(settings: &Settings) -> Result<(), BenchError> {
    let mut notes: Vec<String> = busy_note().into_iter().collect();
    let progress = Progress::new(settings);
    let file = match &settings.file {
        Some(choice) => {
            progress.now("preparing the file");
            Some(TestFile::prepare(choice)?)
        }
        None => None,
    };
    let mut figures = in_memory(settings, &progress);
    if let Some(file) = &file {
        notes.extend(on_file(settings, file, &mut figures, &progress)?);
    }
    progress.end();
    print(settings, &figures, &about(settings, file.as_ref()))?;
    for note in notes {
        eprintln!("haul bench: note: {note}");
    }
    Ok(())
}

fn in_memory(settings: &Settings, progress: &Progress) -> Vec<Measurement> {
    let mut figures = Vec::new();
    for &algorithm in &settings.algorithms {
        progress.now(&format!("{algorithm} in memory"));
        figures.extend(memory::measure(settings, algorithm));
        progress.done();
    }
    figures
}

/// Adds the measurements with a file, warm before cold, and returns notes about them.
fn on_file(
    settings: &Settings,
    file: &TestFile,
    figures: &mut Vec<Measurement>,
    progress: &Progress,
) -> Result<Vec<String>, BenchError> {
    let mut bench = io::FileBench::new(settings, file)?;
    for (place, name) in [(DataLocation::Warm, "warm"), (DataLocation::Cold, "cold")] {
        progress.now("reading the file");
        let reading = match place {
            DataLocation::Cold => bench.cool_down()?,
            _ => Some(bench.warm_up()?),
        };
        let Some(reading) = reading else { break };
        for &algorithm in &settings.algorithms {
            progress.now(&format!("{algorithm} on a file, {name}"));
            let alone =
                table::find(figures, algorithm, DataLocation::Memory, |method| method == Method::Stream);
            let hashing = alone.map_or(1.0, |figure| figure.rates.median());
            figures.extend(bench.measure(algorithm, place, hashing, reading)?);
            progress.done();
        }
    }
    Ok(bench.into_notes())
}

/// Describes the machine and the settings in one line.
fn about(settings: &Settings, file: Option<&TestFile>) -> String {
    let mut parts: Vec<String> = cpu_name().into_iter().collect();
    parts.push(match cpu_count() {
        1 => "1 core".to_owned(),
        cores => format!("{cores} cores"),
    });
    parts.push(format!("blocks of {}", format_size(settings.block as u64)));
    if let Some(file) = file {
        parts.push(format!("a file of {}", format_size(file.size())));
    }
    parts.push(match settings.runs {
        1 => "one run".to_owned(),
        runs => format!("medians of {runs} runs (smallest-largest)"),
    });
    parts.join(", ")
}

/// Returns the processor's name, if the system reports it.
fn cpu_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    let name: String = line.split_once(':')?.1.chars().filter(|letter| !letter.is_control()).collect();
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Returns a note if other processes use this machine: the load average of the last minute is more
/// than half a core.
fn busy_note() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    (load > 0.5).then(|| {
        let cores = cpu_count();
        format!(
            "this host was busy before the measurement (load average {load}, cores {cores}): \
             the results may be too low"
        )
    })
}

fn print(settings: &Settings, figures: &[Measurement], about: &str) -> Result<(), BenchError> {
    let text = if settings.json {
        figures.iter().map(|figure| figure.to_json() + "\n").collect()
    } else {
        format!("{about}\n\n{}", table::tables(figures, &settings.algorithms))
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(BenchError::Output)
}

/// Progress line on a terminal; nothing is printed elsewhere.
struct Progress(ProgressBar);

impl Progress {
    fn new(settings: &Settings) -> Progress {
        let places = if settings.file.is_some() { 3 } else { 1 };
        let steps = settings.algorithms.len() as u64 * places;
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("[{bar:24}] {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Progress(bar)
    }

    fn now(&self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.tick();
    }

    fn done(&self) {
        self.0.inc(1);
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Progress {
    /// Clears the line, so that an error message has its own line.
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
