//! The command `haul-lab link`.

use crate::network::{decimal, size};
use clap::{Args, Parser, ValueEnum};
use haul_lab::emulated_link::{
    BurstLoss, Conditions, Counters, CrossTraffic, Discipline, EmulatedLink, End, LinkSettings, Probability,
};
use haul_lab::wait_until;
use serde_json::{Value, json};
use std::error::Error;
use std::io::{BufRead, Write};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// Text after the options.
pub(crate) const HELP: &str = "\
Without --at-near, the command prints the two namespaces with their addresses, and then follows the lines of standard
input until it ends: `from-near SETTING...` and `from-far SETTING...` change the conditions of one direction, `both
SETTING...` those of both, where a SETTING is an option of conditions without its dashes, for example `loss=1%` or
`path=down`; `counters` prints the counters. Each line is answered by one line. At the end, the counters are printed.

Examples:
  haul-lab link --delay 44.5ms --rate 1G --queue 12M --loss 0.1% --congestion cubic \\
      --at-far 'iperf3 -s' --wait-port 5201 --at-near 'iperf3 -c 10.77.0.2'
  haul-lab link wan --delay 10ms --from-far 'loss=1%,duplicate=0.1%'";

/// Time for which a server at the far end has to listen or to end.
const SERVER_SECONDS_MAX: u64 = 5;

/// Options of `haul-lab link`.
#[derive(Args)]
pub(crate) struct LinkArgs {
    /// Name prefix of the namespaces [default: haul-link-PID].
    name: Option<String>,
    /// Round-trip time: twice the --delay.
    #[arg(long, value_name = "MILLISECONDS", conflicts_with = "delay")]
    round_trip: Option<f64>,
    #[command(flatten)]
    both: ConditionArgs,
    /// Conditions only of what the near end sends, as SETTING,SETTING...
    #[arg(long, value_name = "SETTINGS", value_parser = parse_settings)]
    from_near: Option<Box<ConditionArgs>>,
    /// Conditions only of what the far end sends.
    #[arg(long, value_name = "SETTINGS", value_parser = parse_settings)]
    from_far: Option<Box<ConditionArgs>>,
    /// Seed of all random events.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// MTU of the interfaces.
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    interface_mtu: u32,
    /// Congestion control of TCP, for example cubic or bbr [default: that of the kernel].
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Maximum size of the buffers of TCP [default: that of the kernel].
    #[arg(long, value_name = "BYTES", value_parser = size)]
    tcp_buffers: Option<u64>,
    /// Forward packets here even if the kernel can, so that conditions can change.
    #[arg(long)]
    changeable: bool,
    /// Run a shell command at the near end; then end, with its exit status.
    #[arg(long, value_name = "COMMAND")]
    at_near: Option<String>,
    /// Run a shell command at the far end until that of --at-near ends.
    #[arg(long, value_name = "COMMAND", requires = "at_near")]
    at_far: Option<String>,
    /// Wait until a TCP or UDP port is in use at the far end before --at-near begins.
    #[arg(long, value_name = "PORT", requires = "at_far")]
    wait_port: Option<u16>,
}

/// Conditions of a direction that were given; the others stay.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Conditions")]
struct ConditionArgs {
    /// One-way delay, for example 44.5ms, 300us or 1s.
    #[arg(long, value_name = "TIME", value_parser = time)]
    delay: Option<Duration>,
    /// Greatest deviation from the delay.
    #[arg(long, value_name = "TIME", value_parser = time)]
    jitter: Option<Duration>,
    /// Keep the order of packets (a deviation that changes slowly), or let packets overtake each
    /// other.
    #[arg(long, value_name = "WHAT")]
    jitter_order: Option<Order>,
    /// Bits per second, for example 1G.
    #[arg(long, value_name = "BITS", value_parser = decimal)]
    rate: Option<u64>,
    /// Bytes that pass at once after an idle time (depth of the token bucket).
    #[arg(long, value_name = "BYTES", value_parser = size)]
    burst: Option<u64>,
    /// Maximum number of bytes queued at the entrance of the link [default: 16M].
    #[arg(long, value_name = "BYTES", value_parser = size)]
    queue: Option<u64>,
    /// Drop packets that find the queue full, or also by CoDel.
    #[arg(long, value_name = "NAME")]
    discipline: Option<QueueDiscipline>,
    /// Acceptable wait for CoDel [default: 5ms].
    #[arg(long, value_name = "TIME", value_parser = time)]
    codel_target: Option<Duration>,
    /// Interval of CoDel [default: 100ms].
    #[arg(long, value_name = "TIME", value_parser = time)]
    codel_interval: Option<Duration>,
    /// Share of packets lost, for example 0.1% or 0.001.
    #[arg(long, value_name = "SHARE")]
    loss: Option<Probability>,
    /// Share of packets lost in bursts.
    #[arg(long, value_name = "SHARE")]
    burst_loss: Option<Probability>,
    /// Mean number of packets in a burst of losses [default: 10].
    #[arg(long, value_name = "PACKETS", value_parser = at_least_one)]
    burst_length: Option<f64>,
    /// Share of packets lost within a burst [default: 1].
    #[arg(long, value_name = "SHARE")]
    burst_within: Option<Probability>,
    /// Share of packets with a flipped bit and a wrong checksum.
    #[arg(long, value_name = "SHARE")]
    corrupt: Option<Probability>,
    /// Share of packets with a flipped bit and a valid checksum.
    #[arg(long, value_name = "SHARE")]
    corrupt_silently: Option<Probability>,
    /// Share of packets that are late by --reorder-by.
    #[arg(long, value_name = "SHARE")]
    reorder: Option<Probability>,
    /// Additional delay of reordered packets [default: 5ms].
    #[arg(long, value_name = "TIME", value_parser = time)]
    reorder_by: Option<Duration>,
    /// Share of packets that arrive twice.
    #[arg(long, value_name = "SHARE")]
    duplicate: Option<Probability>,
    /// Drop longer IP packets; 0 for no limit.
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// Pass or drop IP fragments.
    #[arg(long, value_name = "WHAT")]
    fragments: Option<Filter>,
    /// Pass or drop UDP.
    #[arg(long, value_name = "WHAT")]
    udp: Option<Filter>,
    /// State of the path; down drops all packets.
    #[arg(long, value_name = "STATE")]
    path: Option<PathState>,
    /// Time during which the path is down, since the start, for example 3s..5s.
    #[arg(long, value_name = "FROM..TO", value_parser = times)]
    outage: Option<Range<Duration>>,
    /// Average bits per second of the traffic of others through the same queue; 0 for none.
    #[arg(long, value_name = "BITS", value_parser = decimal_or_zero)]
    cross: Option<u64>,
    /// Number of sources of that traffic [default: 8].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    cross_sources: Option<u32>,
    /// Mean time for which a source sends [default: 100ms].
    #[arg(long, value_name = "TIME", value_parser = time)]
    cross_on: Option<Duration>,
    /// Mean time for which a source pauses [default: 100ms].
    #[arg(long, value_name = "TIME", value_parser = time)]
    cross_off: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Order {
    Keep,
    Change,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum QueueDiscipline {
    TailDrop,
    Codel,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Filter {
    Pass,
    Drop,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum PathState {
    Up,
    Down,
}

/// Settings of a direction, as options.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Settings {
    #[command(flatten)]
    args: ConditionArgs,
}

fn parse_settings(text: &str) -> Result<Box<ConditionArgs>, String> {
    let words = text.split([',', ' ']).filter(|word| !word.is_empty());
    let options = words.map(|word| format!("--{word}"));
    let parsed = Settings::try_parse_from(options).map_err(|error| {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })?;
    Ok(Box::new(parsed.args))
}

/// Parses a number with a unit: `1.5s`, `20ms`, `300us`.
fn time(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("us", 1e-6), ("s", 1.0)];
    let found = units.iter().find_map(|(unit, seconds)| {
        let number = text.strip_suffix(unit)?.parse::<f64>().ok()?;
        Duration::try_from_secs_f64(number * seconds).ok()
    });
    found.ok_or_else(|| "invalid time; use for example 1.5s, 20ms or 300us".to_owned())
}

fn times(text: &str) -> Result<Range<Duration>, String> {
    let (from, to) = text.split_once("..").ok_or("invalid times; use for example 3s..5s")?;
    Ok(time(from)?..time(to)?)
}

fn at_least_one(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 1.0);
    number.ok_or_else(|| "invalid number; it is at least 1".to_owned())
}

fn decimal_or_zero(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { decimal(text) }
}

impl ConditionArgs {
    fn apply(&self, to: &mut Conditions) {
        set(&mut to.delay, self.delay);
        set(&mut to.jitter, self.jitter);
        set(&mut to.jitter_reorders, self.jitter_order.map(|order| order == Order::Change));
        set(&mut to.rate, self.rate.map(Some));
        set(&mut to.burst, self.burst);
        set(&mut to.queue, self.queue);
        match self.discipline {
            Some(QueueDiscipline::TailDrop) => to.discipline = Discipline::TailDrop,
            Some(QueueDiscipline::Codel) => to.discipline = Discipline::CODEL,
            None => {}
        }
        if let Discipline::CoDel { target, interval } = &mut to.discipline {
            set(target, self.codel_target);
            set(interval, self.codel_interval);
        }
        set(&mut to.loss, self.loss);
        if let Some(share) = self.burst_loss {
            let loss = to.burst_loss.unwrap_or(BurstLoss { share, length: 10.0, within: Probability::ONE });
            to.burst_loss = (share > Probability::ZERO).then_some(BurstLoss { share, ..loss });
        }
        if let Some(loss) = &mut to.burst_loss {
            set(&mut loss.length, self.burst_length);
            set(&mut loss.within, self.burst_within);
        }
        set(&mut to.corrupt, self.corrupt);
        set(&mut to.corrupt_silently, self.corrupt_silently);
        set(&mut to.reorder, self.reorder);
        set(&mut to.reorder_by, self.reorder_by);
        set(&mut to.duplicate, self.duplicate);
        set(&mut to.mtu, self.mtu.map(|mtu| Some(mtu).filter(|mtu| *mtu > 0)));
        set(&mut to.drops_fragments, self.fragments.map(|filter| filter == Filter::Drop));
        set(&mut to.blocks_udp, self.udp.map(|filter| filter == Filter::Drop));
        set(&mut to.is_down, self.path.map(|state| state == PathState::Down));
        set(&mut to.outage, self.outage.clone().map(Some));
        if let Some(rate) = self.cross {
            let traffic = to.cross.unwrap_or(CrossTraffic::of_rate(rate));
            to.cross = (rate > 0).then_some(CrossTraffic { rate, ..traffic });
        }
        if let Some(cross) = &mut to.cross {
            set(&mut cross.sources, self.cross_sources);
            set(&mut cross.on, self.cross_on);
            set(&mut cross.off, self.cross_off);
        }
    }
}

fn set<T>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}

impl LinkArgs {
    fn settings(&self) -> Result<LinkSettings, Box<dyn Error>> {
        let mut both = Conditions::default();
        if let Some(millis) = self.round_trip {
            both.delay = Duration::try_from_secs_f64(millis / 2000.0)?;
        }
        self.both.apply(&mut both);
        let mut settings = LinkSettings {
            seed: self.seed,
            interface_mtu: self.interface_mtu,
            congestion: self.congestion.clone(),
            tcp_buffers: self.tcp_buffers,
            is_changeable: self.changeable,
            ..both.into()
        };
        self.from_near.iter().for_each(|args| args.apply(&mut settings.near));
        self.from_far.iter().for_each(|args| args.apply(&mut settings.far));
        Ok(settings)
    }

    /// Makes the link, runs the commands or follows `lines`, and removes the link.
    pub(crate) fn run(&self, lines: impl BufRead, out: &mut impl Write) -> Result<ExitCode, Box<dyn Error>> {
        let name = self.name.clone().unwrap_or_else(|| format!("haul-link-{}", std::process::id()));
        let link = EmulatedLink::make(&name, self.settings()?)?;
        let code = match &self.at_near {
            Some(near) => {
                let code = self.run_commands(&link, near)?;
                counters(&link).iter().for_each(|counters| eprintln!("{counters}"));
                code
            }
            None => {
                follow(&link, lines, out)?;
                ExitCode::SUCCESS
            }
        };
        link.close()?;
        Ok(code)
    }

    fn run_commands(&self, link: &EmulatedLink, near: &str) -> Result<ExitCode, Box<dyn Error>> {
        let at = |end: End, text: &str| {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &link.namespace(end), "sh", "-c", text]);
            command
        };
        let far = match &self.at_far {
            Some(text) => Some(at(End::Far, text).stdin(Stdio::null()).process_group(0).spawn()?),
            None => None,
        };
        if let Some(port) = self.wait_port {
            let suffix = format!(":{port:04X}");
            wait_until(format_args!("port {port} at the far end"), || {
                let mut tables =
                    at(End::Far, "cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp /proc/net/udp6");
                let tables = tables.stderr(Stdio::null()).output().map(|output| output.stdout);
                let tables = String::from_utf8_lossy(&tables.unwrap_or_default()).into_owned();
                tables
                    .lines()
                    .any(|line| line.split_whitespace().nth(1).is_some_and(|it| it.ends_with(&suffix)))
            });
        }
        let status = at(End::Near, near).status();
        let ended = far.map_or(Ok(()), end);
        let code = status?.code().and_then(|code| u8::try_from(code).ok());
        ended?;
        Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
    }
}

/// Ends a command and all processes that it has started.
fn end(mut command: Child) -> Result<(), Box<dyn Error>> {
    let group = i32::try_from(command.id()).ok().and_then(rustix::process::Pid::from_raw);
    let group = group.ok_or("a process has no number")?;
    let begun = std::time::Instant::now();
    // The group is gone if the command has ended.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
    while command.try_wait()?.is_none() {
        if begun.elapsed() > Duration::from_secs(SERVER_SECONDS_MAX) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Prints the ends of the link and carries out lines.
fn follow(link: &EmulatedLink, lines: impl BufRead, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    for end in End::BOTH {
        writeln!(out, "{} {}", link.namespace(end), end.address())?;
    }
    out.flush()?;
    // The parent holds the other end, which closes when the parent exits for any reason.
    for line in lines.lines() {
        match carry_out(link, &line?) {
            Ok(answer) => writeln!(out, "{answer}")?,
            Err(error) => writeln!(out, "error: {error}")?,
        }
        out.flush()?;
    }
    if let Some(counters) = counters(link) {
        writeln!(out, "{counters}")?;
    }
    Ok(())
}

fn carry_out(link: &EmulatedLink, line: &str) -> Result<String, Box<dyn Error>> {
    let (which, settings) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    let ends: &[End] = match which {
        "counters" => return Ok(counters(link).unwrap_or_default().to_string()),
        "from-near" => &[End::Near],
        "from-far" => &[End::Far],
        "both" => &End::BOTH,
        _ => return Err("unknown line; use from-near, from-far, both or counters".into()),
    };
    let args = parse_settings(settings)?;
    for end in ends {
        link.change(*end, |conditions| args.apply(conditions))?;
    }
    Ok("done".to_owned())
}

/// Returns the counters of both directions; `None` if the kernel forwards the packets.
fn counters(link: &EmulatedLink) -> Option<Value> {
    let of = |end| -> Option<Value> {
        let counters: Counters = link.counters(end).ok()?;
        Some(counters.named().into_iter().map(|(name, value)| (name, json!(value))).collect())
    };
    Some(json!({"from_near": of(End::Near)?, "from_far": of(End::Far)?}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_lab::needs::{Need, met_or_skip};

    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        args: LinkArgs,
    }

    fn parsed(words: &[&str]) -> LinkArgs {
        Line::try_parse_from(words).expect("valid options").args
    }

    /// Every option of conditions, with a value that differs from the default.
    const EVERY: &str = "delay=44.5ms,jitter=300us,jitter-order=change,rate=1G,burst=64K,queue=12M,discipline=codel,\
        codel-target=2ms,codel-interval=50ms,loss=0.1%,burst-loss=1%,burst-length=4,burst-within=0.5,corrupt=1e-4,\
        corrupt-silently=1e-5,reorder=2%,reorder-by=3ms,duplicate=3%,mtu=1400,fragments=drop,udp=drop,path=down,\
        outage=3s..5s,cross=100M,cross-sources=3,cross-on=1s,cross-off=2s";

    fn every() -> Conditions {
        let share = |value| Probability::new(value).expect("from 0 to 1");
        let (millis, secs) = (Duration::from_millis, Duration::from_secs);
        Conditions {
            delay: Duration::from_micros(44_500),
            jitter: Duration::from_micros(300),
            jitter_reorders: true,
            rate: Some(1_000_000_000),
            burst: 64 << 10,
            queue: 12 << 20,
            discipline: Discipline::CoDel { target: millis(2), interval: millis(50) },
            loss: share(0.001),
            burst_loss: Some(BurstLoss { share: share(0.01), length: 4.0, within: share(0.5) }),
            corrupt: share(1e-4),
            corrupt_silently: share(1e-5),
            reorder: share(0.02),
            reorder_by: millis(3),
            duplicate: share(0.03),
            mtu: Some(1400),
            drops_fragments: true,
            blocks_udp: true,
            is_down: true,
            outage: Some(secs(3)..secs(5)),
            cross: Some(CrossTraffic { rate: 100_000_000, sources: 3, on: secs(1), off: secs(2) }),
        }
    }

    #[test]
    fn every_condition_has_an_option_for_each_direction() {
        let options: Vec<String> = EVERY.split(',').map(|word| format!("--{}", word.trim())).collect();
        let words: Vec<&str> = options.iter().map(String::as_str).collect();
        let both = parsed(&words).settings().expect("valid");
        assert_eq!(both, LinkSettings { near: every(), far: every(), ..LinkSettings::default() });
        let near =
            parsed(&["--from-near", EVERY, "--seed=7", "--interface-mtu=9000"]).settings().expect("valid");
        let expected =
            LinkSettings { near: every(), seed: 7, interface_mtu: 9000, ..LinkSettings::default() };
        assert_eq!(near, expected);
        let far = parsed(&["--round-trip=30", "--from-far", "loss=1%"]).settings().expect("valid");
        assert_eq!((far.near.delay, far.far.delay), (Duration::from_millis(15), Duration::from_millis(15)));
        assert_eq!((far.near.loss, far.far.loss), (Probability::ZERO, "1%".parse().expect("valid")));
    }

    #[test]
    fn settings_can_be_taken_back() {
        let mut conditions = every();
        let back = "discipline=tail-drop,burst-loss=0,mtu=0,udp=pass,fragments=pass,path=up,cross=0,loss=0";
        parse_settings(back).expect("valid").apply(&mut conditions);
        assert_eq!(conditions.discipline, Discipline::TailDrop);
        assert_eq!((conditions.burst_loss, conditions.mtu, conditions.cross), (None, None, None));
        assert!(!conditions.blocks_udp && !conditions.drops_fragments && !conditions.is_down);
        assert_eq!(conditions.delay, every().delay, "the others stay");
    }

    #[test]
    fn wrong_settings_are_named() {
        for wrong in [
            "loss=2",
            "loss=-1%",
            "delay=5",
            "delay=-1s",
            "rate=0",
            "burst-length=0.5",
            "burst-length=NaN",
            "outage=3s",
            "cross-sources=0",
            "path=sideways",
            "lost=1",
            "loss",
        ] {
            let error = parse_settings(wrong).expect_err(wrong);
            let name = wrong.split('=').next().unwrap_or_default();
            assert!(error.contains(name) && !error.contains('\n'), "{wrong}: {error}");
        }
    }

    #[test]
    fn lines_change_the_link_and_counters_are_printed() {
        if !met_or_skip(&[Need::Links]) {
            return;
        }
        let name = format!("haul-lab-lines-{}", std::process::id());
        let mut out = Vec::new();
        let lines =
            b"from-near loss=1% delay=3ms\nboth path=down\ncounters\nsideways loss=1%\nfrom-far loss=2\n";
        let args = parsed(&[&name, "--changeable"]);
        args.run(&lines[..], &mut out).expect("a link");
        let out = String::from_utf8(out).expect("text");
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[..2], [format!("{name}-a 10.77.0.1"), format!("{name}-b 10.77.0.2")]);
        assert_eq!(lines[2..4], ["done", "done"]);
        for line in [lines[4], lines[7]] {
            let counters: Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(counters["from_near"]["packets"], 0);
            assert!(counters["from_far"]["late_max_us"].is_u64());
        }
        assert!(lines[5].starts_with("error: unknown line") && lines[6].contains("--loss"), "{out}");
        assert_eq!(lines.len(), 8);
    }

    #[test]
    fn commands_run_at_both_ends_and_their_status_is_returned() {
        if !met_or_skip(&[Need::Links, Need::Program("python3")]) {
            return;
        }
        let name = format!("haul-lab-commands-{}", std::process::id());
        let far = "exec python3 -c 'import socket\n\
            s = socket.create_server((\"10.77.0.2\", 7000))\n\
            while True: s.accept()[0].sendall(b\"7\")'";
        let near = "exit $(python3 -c 'import socket\n\
            print(socket.create_connection((\"10.77.0.2\", 7000)).recv(1).decode())')";
        let words = [&name, "--delay=1ms", "--at-far", far, "--at-near", near, "--wait-port=7000"];
        let code = parsed(&words).run(&b""[..], &mut Vec::new()).expect("a link");
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(7)));
        // The name is free again: nothing is left.
        let status = parsed(&[&name, "--at-near=exit 3"]).run(&b""[..], &mut Vec::new()).expect("a link");
        assert_eq!(format!("{status:?}"), format!("{:?}", ExitCode::from(3)));
    }
}
