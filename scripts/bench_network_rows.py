"""The rows of the network's table: what goes from one host to the other, by which tools, over which link, and the goal.

A tool's command is a list of words in which are filled in: {src} (what is sent), {name} (its last part), {dst} (a folder of the far
host that is there), {under} (where {src} lands for tools that want to be told: {dst}, or {dst}/{name} for a folder), {rel dst} ({dst}
beneath the folder that servers export), {host} (the far host), {at far} (what a command of the far host begins with), {work} (a
folder for a tool's own files), {haul} and {lab} (the binaries), {ticket} (what `haul serve` wrote), {ssh}, {ssh options}, {ssh key},
{ssh port} (how to log in there), {ssh -S} (the same as values of the option -S), {ssh home} (a home directory with the same
settings), {path qcp}, {path sy} (where these programs are).
"""

from dataclasses import dataclass, field

from bench_link import Way
from bench_rows import GIB, KIB, MIB, Data


@dataclass
class Sent(Data):
    """A data set of this table. `goal`: what the goals name, where that is more."""

    goal: str = ""

    def told(self):
        """How much it is, for people."""
        size = f"{self.bytes / MIB:.0f} MiB"
        files = "one file" if self.is_one_file else f"{self.files:,} files"
        return f"{files}, {size}" + (f"; of the goal's {self.goal}" if self.goal else "")


def uniform(name, files, size, goal=""):
    return Sent(name, ["uniform", "--files", str(files), "--bytes", str(size)], files, files * size, goal)


def small(name, files, dirs, size, goal=""):
    make = ["small", "--files", str(files), "--dirs", str(dirs), "--bytes", str(size)]
    return Sent(name, make, files, files * size, goal)


@dataclass
class Tool:
    """A tool. `server`: what must run at the far host, by the name in bench_link.Servers; `serve`: `haul serve` runs there with
    these words, ends with the run, and its processor time and memory are told, too. `flips`: the connection passes a
    proxy that flips so many bits. `near_only`: it computes at the near host and sends nothing."""

    name: str
    command: list
    server: str = ""
    serve: list | None = None
    flips: int | None = None
    near_only: bool = False
    data: Data | None = None
    needs: str = ""
    # A tool of ours that may take longer than --patience times the first one.
    may_be_stopped: bool = False

    @property
    def program(self):
        return self.needs or self.command[0]

    @property
    def is_ours(self):
        return self.command[0] == "{haul}"


@dataclass
class Line:
    """A line of the table: the first tool's measure divided by the greatest of the others' in the same round. `goal` None: only told.
    `by` "link": the first tool's time divided by the time of the bare bytes at the rate of the link."""

    title: str
    ours: str
    others: list
    goal: float | None
    by: str = "seconds"
    # FIVER's Equation 1: told in percent as well.
    is_overhead: bool = False


@dataclass
class Row:
    id: str
    title: str
    data: Data
    way: Way
    tools: list
    lines: list
    rounds: int = 3
    # Peak memory of either end that is not to be passed.
    rss_max: int = 0
    # From the disk and to it, and not in memory: the source is not in the page cache, and the copy is synced.
    on_disk: bool = False
    # Only run where it is named.
    by_name: bool = False

    def all_data(self):
        """Every data set that its tools send, once."""
        return list({data.name: data for data in [self.data, *(tool.data for tool in self.tools if tool.data)]}.values())


def esnet_like(name, kind, pairs, part):
    """FIVER's mixed sets: pairs of sizes, in megabytes of 10^6, each divided by `part`."""
    sizes = {"sorted": 255, "shuffled": 510}
    made = [kind, "--pairs", str(pairs), "--scale", str(part)]
    goal = "sizes, each 1/%d" % part if part > 1 else "sizes, fewer pairs"
    return Sent(name, made, 2 * pairs, pairs * sizes[kind] * 10**6 // part, goal)


@dataclass
class Sizes:
    """How large the data is: rows of at most some four minutes each in three rounds, or small enough to try the script. `scale` times
    as many files, or bytes of one."""

    quick: bool
    scale: float = 1
    large: Sent = field(init=False)
    on_disk: Sent = field(init=False)
    # A large one beside many tools, each of which takes its time.
    fairly_large: Sent = field(init=False)
    medium: Sent = field(init=False)
    many: Sent = field(init=False)
    all_small: Sent = field(init=False)
    one_of_small: Sent = field(init=False)
    mixed: dict = field(init=False)
    faulty: Sent = field(init=False)
    # A long transfer, and a short one that shows the start.
    lossy: Sent = field(init=False)
    lossy_start: Sent = field(init=False)

    def __post_init__(self):
        q = "quick-" if self.quick else ""

        def amount(usual, quick, least=2):
            return max(least, round((quick if self.quick else usual) * self.scale))

        def whole(size):
            return max(MIB, size // MIB * MIB)

        medium, many, all_small = amount(400, 50), amount(20_000, 1000), amount(100_000, 1000)
        self.large = uniform(f"net-{q}large", 1, whole(amount(GIB // 2, 64 * MIB)))
        self.on_disk = uniform(f"net-{q}on-disk", 1, whole(amount(2 * GIB, 64 * MIB)))
        self.fairly_large = uniform(f"net-{q}fairly-large", 1, whole(amount(384 * MIB, 64 * MIB)))
        self.medium = uniform(f"net-{q}1M", medium, MIB, "10,000 files")
        self.many = small(f"net-{q}4K", many, max(1, many // 100), 4 * KIB, "100,000 files")
        self.all_small = small(f"net-{q}all-4K", all_small, max(1, all_small // 100), 4 * KIB, "100,000 files")
        self.one_of_small = uniform(f"net-{q}one", 1, all_small * 4 * KIB)
        self.lossy = uniform(f"net-{q}lossy", 1, whole(amount(2 * GIB, 64 * MIB)))
        self.lossy_start = uniform(f"net-{q}lossy-start", 1, whole(amount(256 * MIB, 32 * MIB)))
        self.faulty = uniform(f"net-{q}faulty", 1, whole(amount(4 * GIB, 256 * MIB)), "60 GB")
        part = 20 if self.quick else 2
        self.mixed = {
            "uniform": uniform(f"net-{q}uniform", amount(16, 4), 16 * MIB if self.quick else 64 * MIB),
            "shuffled": esnet_like(f"net-{q}shuffled", "shuffled", amount(4, 2), part),
            "sorted": esnet_like(f"net-{q}sorted", "sorted", amount(4, 2), part // 2),
        }


def all_rows(quick, scale=1):
    sizes = Sizes(quick, scale)
    rows = [row for ms in [0, 30, 89] for row in peer_rows(sizes, ms)]
    rows.append(small_files_row(sizes))
    rows += overhead_rows(sizes)
    rows += memory_rows(sizes)
    rows.append(faults_row(sizes))
    rows += parts_rows(sizes)
    rows.append(disk_row(sizes))
    rows += lossy_rows(sizes)
    rows += chunk_rows(sizes)
    return rows


# A sender that waits for its receiver: from the first command to the end of the receiver's, as a user would wait. Its leaving is not
# waited for.
SENDME = """
work=$(mktemp -d -p "$1"); dst=$2; shift 2
cd "$work"
sendme send --no-progress --relay disabled --ticket-type addresses "$0" > said 2> errors &
sender=$!
trap 'kill -KILL $sender || :; wait $sender 2> /dev/null || :; cd /; rm -rf "$work"' EXIT
while ticket=$(sed -n 's/^sendme receive //p' said); [ -z "$ticket" ]; do
    kill -0 $sender || { cat errors >&2; exit 1; }
    sleep 0.01
done
cd "$dst"
"$@" sendme receive --no-progress --relay disabled "$ticket" > /dev/null
"""


def by_ssh(*options):
    return ["{haul}", "send", "-q", "-e", "{ssh}", "--remote-haul", "{haul}", *options, "{src}", "{host}:{dst}"]


def by_ticket(*options):
    return ["{haul}", "send", "-q", "--ticket-file", "{ticket}", *options, "{src}", ":"]


def peer_rows(sizes, ms):
    """Beside other tools. Far hosts have 1 Gbit/s; without a delay there is no limit but the processors. What the tools do beside
    copying is told in docs/benchmark-network.md."""
    way = Way(ms, 1000 if ms else 0)
    peers = [
        Tool("rsync -a (ssh)", ["rsync", "-a", "-e", "{ssh}", "{src}", "{host}:{dst}/"], "ssh"),
        Tool("rsync -a (daemon)", ["rsync", "-a", "{src}", "rsync://{host}:8730/copies/{rel dst}/"], "rsyncd"),
        Tool("scp -rp", ["scp", "-rpq", "{ssh options}", "{src}", "{host}:{dst}/"], "ssh"),
        Tool("rclone (sftp)", ["rclone", "copy", "-q", "--config", "/dev/null", "--sftp-host", "{host}", "--sftp-port", "{ssh port}",
                               "--sftp-user", "root", "--sftp-key-file", "{ssh key}", "--transfers", "8", "--checkers", "8",
                               "{src}", ":sftp:{under}"], "ssh"),
        Tool("lftp mirror (sftp)", ["lftp", "-e", "set net:max-retries 1; set sftp:auto-confirm yes; set sftp:connect-program "
                                    "'ssh -a -x -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes -i {ssh key} -p {ssh port}'; {lftp}; exit", "sftp://root@{host}:{ssh port}"], "ssh"),
        Tool("xrdcp -S 4", ["xrdcp", "-s", "-r", "-f", "--parallel", "4", "-S", "4", "{src}", "root://{host}:1094/{dst}/"], "xrootd"),
        Tool("sy", ["env", "HOME={ssh home}", "sy", "-q", "{src slash}", "root@{host}:{under}"], "ssh", needs="sy"),
        Tool("sy --verify", ["env", "HOME={ssh home}", "sy", "-q", "--verify=after", "{src slash}", "root@{host}:{under}"], "ssh", needs="sy"),
        Tool("sendme", ["sh", "-ec", SENDME, "{src}", "{work}", "{dst}", "{at far}"], needs="sendme"),
        Tool("globus-url-copy -p 4", ["globus-url-copy", "-q", "-cd", "-r", "-fast", "-p", "4", "-cc", "4", "-pp",
                                      "file://{src slash}", "ftp://{host}:2811{under slash}"], "gridftp"),
    ]
    ours = [Tool("ours", by_ssh(), "ssh"), Tool("ours by a ticket", by_ticket(), serve=[]),
            Tool("ours in plain", by_ticket("--plain"), serve=["--plain"])]
    rows = []
    for name, title, data in [("large", "one large file", sizes.fairly_large), ("medium", "files of 1 MiB", sizes.medium),
                              ("small", "files of 4 KiB", sizes.many)]:
        # Who must log in by ssh is measured against a login of ours, who runs a server of his own against a server of ours.
        own = {peer.name: "ours" if peer.server == "ssh" else "ours by a ticket" for peer in peers}
        lines = [Line(f"{own[peer.name]} / {peer.name}", own[peer.name], [peer.name], 1.0) for peer in peers]
        # As globus-url-copy does, nothing is encrypted; what arrives is compared all the same.
        lines.append(Line("ours in plain / globus-url-copy -p 4", "ours in plain", ["globus-url-copy -p 4"], 1.0))
        lines.append(Line("ours by a ticket / by ssh", "ours by a ticket", ["ours"], None))
        rows.append(Row(f"peers-{name}-{ms}", title, data, way, ours + peers, lines))
    return rows


def small_files_row(sizes):
    way = Way(30, 1000)
    one = Tool("one file", by_ticket(), serve=[], data=sizes.one_of_small)
    return Row("small-as-one", "files of 4 KiB beside the same bytes in one file", sizes.all_small, way,
               [Tool("ours", by_ticket(), serve=[]), one], [Line("many / one", "ours", ["one file"], 2.0)], rss_max=256 * MIB)


# What computes a checksum of every file, one by one, on one processor: the paper's "Checksum Only".
CHECKSUMS = {"md5": "md5sum", "sha1": "sha1sum", "sha256": "sha256sum", "blake3": "b3sum --num-threads=1"}


def overhead_rows(sizes):
    """FIVER's Equation 1: (t - max(t_transfer, t_checksum)) / max(t_transfer, t_checksum), as t / max(...)."""
    rows = []
    for bound, way, goal in [("net", Way(0, 1000), 1.01), ("sum", Way(0, 0), 1.03)]:
        for kind, data in sizes.mixed.items():
            for algorithm, program in CHECKSUMS.items():
                def send(how, *more):
                    return by_ticket(f"--verify={how}", *(["-a", algorithm] if how != "none" else []), *more)

                plain = ["--plain"]
                tools = [Tool(how, send(how, *plain), serve=plain)
                         for how in ["stream", "none", "sequential", "file-pipeline", "block-pipeline"]]

                def read(by):
                    return ["sh", "-c", f"find \"$0\" -type f -print0 | xargs -0 {by} > /dev/null", "{src}"]

                rivals = [tool.name for tool in tools if tool.name != "none"]
                tools.append(Tool("checksum", read(program), near_only=True, needs=program.split()[0]))
                tools.append(Tool("haul sum", read(f"'{{haul}}' sum -a {algorithm}"), near_only=True, needs="{haul}"))
                lines = [Line(f"{name} / max(none, checksum)", name, ["none", "checksum"], goal if name == "stream" else None,
                              is_overhead=True) for name in rivals]
                # Against our own checksums, by every processor and many files at once: both ends share those processors here.
                lines.append(Line("stream / max(none, haul sum)", "stream", ["none", "haul sum"], None, is_overhead=True))
                rows.append(Row(f"fiver-{bound}-{kind}-{algorithm}", f"{kind} set, {algorithm}", data, way, tools, lines))
    return rows


def memory_rows(sizes):
    """Peak memory of both ends."""
    return [
        Row("memory-fat", "one large file, long fat link", sizes.large, Way(89, 5000), [Tool("ours", by_ticket(), serve=[])], [],
            rounds=1, rss_max=256 * MIB),
        Row("memory-many", "very many files", sizes.all_small, Way(), [Tool("ours", by_ticket(), serve=[])], [], rounds=1,
            rss_max=256 * MIB),
    ]


def faults_row(sizes):
    """FIVER's Table III: bits flipped on the way, where nothing else would find them."""
    tools = [Tool(name, by_ticket("--plain"), serve=["--plain"], flips=flips)
             for name, flips in [("24 flips", 24), ("no flips", 0)]]
    lines = [Line("24 flips / none", "24 flips", ["no flips"], 1.10)]
    return Row("faults", "bits flipped on a plain connection", sizes.faulty, Way(), tools, lines)


def parts_rows(sizes):
    """Both ends of a transfer beside the parts that it is made of, measured alone."""
    rows = []
    for name, serve, options in [("tls", [], []), ("plain", ["--plain"], ["--plain"])]:
        parts = ["{lab}", "parts", *options, "{src}", "{dst}/{name}"]
        tools = [Tool("ours", by_ticket(*options), serve=serve),
                 Tool("ours, one lane", by_ticket("--streams=1", *options), serve=serve),
                 Tool("parts", parts, near_only=True)]
        lines = [Line("processor time / its parts", "ours", ["parts"], 1.10, by="cpu"),
                 Line("processor time / its parts, one lane", "ours, one lane", ["parts"], None, by="cpu"),
                 Line("time / the bare connection's", "ours", ["parts"], 1 / 0.75 if name == "tls" else None, by="wire"),
                 Line("time / the bare connection's, one lane", "ours, one lane", ["parts"], None, by="wire")]
        rows.append(Row(f"parts-{name}", f"memory to memory, {name} with BLAKE3", sizes.large, Way(), tools, lines, rounds=5))
    return rows


def disk_row(sizes):
    cp = Tool("cp", ["cp", "-r", "{src}", "{dst}/"])
    return Row("disk", "one large file, disk to disk", sizes.on_disk, Way(), [Tool("ours", by_ticket(), serve=[]), cp],
               [Line("ours / cp", "ours", ["cp"], 1 / 0.95)], rounds=5, on_disk=True)


# 0.98 of the payload that TCP carries over 1 Gbit/s.
PACED = "--rate=110M"


def link_lines(tools):
    return [Line(f"{tool.name}: time / that of the link", tool.name, [], None, by="link") for tool in tools]


def lossy_rows(sizes):
    """Long links that lose packets, by transport and congestion control. Another transport is one more tool in `ours`."""
    rows = []
    for kind, data in [("bulk", sizes.lossy), ("start", sizes.lossy_start)]:
        ours = [Tool(f"ours by {name}", by_ticket(*options), serve=[], may_be_stopped=True)
                for name, options in [("udp", ["--transport=udp"]), ("auto", ["--transport=auto"]), ("quic", ["--transport=quic"]),
                                      ("tcp bbr paced", ["--cc=bbr", PACED]), ("tcp bbr", ["--cc=bbr"]),
                                      ("tcp cubic paced", ["--cc=cubic", PACED]), ("tcp cubic", ["--cc=cubic"])]]
        others = [Tool(f"iperf3 {cc}", ["iperf3", "-c", "{host}", "-n", str(data.bytes), "-C", cc], "iperf3", near_only=True)
                  for cc in ["bbr", "cubic"]]
        # At 95 % of the link, without congestion control.
        others.append(Tool("uftp", ["uftp", "-q", "-M", "{host}", "-I", "10.77.0.1", "-R", "950000", "-B", "16777216", "-b", "1400",
                                    "-D", "{rel dst}/{name}", "{src}"], "uftpd"))
        # QUIC after a login by ssh; it is given the rate and the round trip of the link.
        for ms in [30, 89]:
            qcp = Tool("qcp", ["qcp", "-q", "{ssh -S}", "--remote-qcp-binary", "{path qcp}", "--tx", "120M", "--rx", "120M", "--rtt",
                               str(ms), "{src}", "{host}:{dst}/"], "ssh")
            for loss in [0.01, 0.1, 1]:
                tools = [*ours, *others, qcp]
                rows.append(Row(f"lossy-{kind}-{ms}-{loss:g}", f"one file over a link with loss ({kind})", data, Way(ms, 1000, loss),
                                tools, link_lines(tools), by_name=True))
    files = [("small", 30, [0, 0.1, 1], sizes.many), ("medium", 89, [0], sizes.medium)]
    for kind, ms, losses, data in files:
        tools = [Tool(f"ours by {name}", by_ticket(f"--transport={name}"), serve=[]) for name in ["udp", "auto", "tcp"]]
        rows += [Row(f"lossy-{kind}-{ms}-{loss:g}", f"many files over a link with loss ({kind})", data, Way(ms, 1000, loss), tools,
                     link_lines(tools), by_name=True) for loss in losses]
    return rows


def chunk_rows(sizes):
    """Figure 2 of the paper of FMFT: throughput by the size of a datagram, with and without CRC-16. The link's time has no headers in
    it: a datagram of N bytes costs 66 more on the link."""
    rows = []
    for size in [200, 400, 600, 900, 1100, 1400, 2400, 4000]:
        tools = [Tool(check, by_ticket("--transport=udp", f"--packet-check={check}", f"--chunk-size={size}"),
                      serve=[f"--packet-check={check}"]) for check in ["none", "crc16", "crc32c", "aead"]]
        rows.append(Row(f"udp-chunk-{size}", f"datagrams of {size} bytes", sizes.lossy_start, Way(1, 1000), tools,
                        [*link_lines(tools), Line("crc16 / none", "crc16", ["none"], 1.01)], by_name=True))
    return rows
