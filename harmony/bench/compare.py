"""Measures package harmony and other libraries and prints the results as tables.

    compare.py DIR [ROUNDS]

DIR contains the output of peers.sh. Each measurement is a new process, which warms up
with other data of the same kind and then measures data that it has not processed
before. Times are CPU times. In each round, every library runs once; the tables show
the medians of the rounds.

Every library is measured in its fastest published form: a Rust crate natively, not by
its Python binding, which makes an int object of each token. Of openai-harmony the
binding is measured beside it, because engines use that. tiktoken has no crate of its
own (tiktoken-rs is another project's), so its package from PyPI is all that there is.

The command fails if a library has other tokens than package harmony, or if the geometric
mean of harmony's ratios to bpe-openai is below LIMIT.
"""

import datetime
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import tempfile

OURS = "envoy-harmony"
# What the ratios are to.
BASE = "bpe-openai"
LIMIT = 4.0
KINDS = ("prose", "code", "json", "multi")
WORST = {
    "letter": lambda r, n: "a" * n,
    "spaces": lambda r, n: " " * n,
    "newlines": lambda r, n: "\n" * n,
    "punctuation": lambda r, n: "!" * n,
    "mixed spaces": lambda r, n: "".join(r.choices(" \t\r\n", k=n)),
    "Han": lambda r, n: "\u4e2d\u6587\u5b57\u7b26" * (n // 12),
    "random letters": lambda r, n: "".join(r.choices("abcdefghijklmnopqrstuvwxyz", k=n)),
    "base64": lambda r, n: "".join(r.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", k=n)),
    "digits": lambda r, n: "".join(r.choices("0123456789", k=n)),
}
SIZES = (10_000, 100_000, 1_000_000)


def commands(top):
    python = [str(top / "venv/bin/python"), str(pathlib.Path(__file__).parent / "measure.py")]
    rust = str(top / "rust/release/peers")
    return {
        OURS: [str(top / "ours"), "encode"],
        **{name: [rust, name, "encode"] for name in (BASE, "fastokens", "tiktoken-rs", "openai-harmony")},
        "tiktoken (Python)": [*python, "tiktoken", "encode"],
        "tiktoken-go": [str(top / "tiktokengo")],
    }


def machine():
    """The date, and what explains figures that are not those of other runs."""
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as f:
            cpu = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), cpu)
    except OSError:
        pass  # not Linux
    date = datetime.datetime.now(datetime.timezone.utc).date()
    return f"{date}; {cpu}, {os.cpu_count()} CPUs, load average before the run {os.getloadavg()[0]:.2f}"


# One thread each. The threads of fastokens' own pool would spin while they wait, which
# doubles the CPU time.
ONE_THREAD = {"GOMAXPROCS": "1", "RAYON_NUM_THREADS": "1", "FASTOKENS_BPE_THREADS": "1"}


def measure(command, files):
    """The output lines of one process and its peak memory in MB."""
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen([*command, *map(str, files)], stdout=out, env=os.environ | ONE_THREAD)
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"{command[0]} failed")
        out.seek(0)
        lines = [line.split() for line in out.read().splitlines()]
    return lines, usage.ru_maxrss / 1024


def throughput(peers, corpus, rounds):
    """Compares the encoders. Returns which have other tokens than ours, by the texts, and our mean ratio."""
    means = {}
    speed, exact, load, memory = {}, {}, {}, {}
    for r in range(rounds):
        for kind in KINDS:
            part = 1 + r % 5
            warm, fresh = corpus / f"{kind}.{(part + 1) % 6}", corpus / f"{kind}.{part}"
            for name, command in peers.items():
                (first, _, line), peak = measure(command, [warm, fresh])
                speed.setdefault((name, kind), []).append(fresh.stat().st_size / float(line[1]) / 1e3)
                load.setdefault(name, []).append(float(first[1]))
                memory.setdefault(name, []).append(peak)
                exact.setdefault((name, kind), []).append(line[3])
    heads = [f"{k} MB/s" for k in KINDS]
    print(f"| encoder | {' | '.join(heads)} | geometric mean | exact | cold start ms | peak MB |")
    print("|---|" + "---|" * (len(KINDS) + 4))
    for name in peers:
        cells, ratios = [], []
        for kind in KINDS:
            own = statistics.median(speed[name, kind])
            ratios.append(own / statistics.median(speed[BASE, kind]))
            cells.append(f"{own:.1f} ({ratios[-1]:.2f}x)")
        means[name] = statistics.geometric_mean(ratios)
        same = "".join("y" if exact[name, k] == exact[OURS, k] else "N" for k in KINDS)
        print(f"| {name} | {' | '.join(cells)} | {means[name]:.2f}x | {same} "
              f"| {statistics.median(load[name]):.1f} | {statistics.median(memory[name]):.0f} |")
    return [f"{name}, {k}" for name in peers for k in KINDS if exact[name, k] != exact[OURS, k]], means[OURS]


def worst(peers, rounds):
    print("\n| ms for 10 KB / 100 KB / 1 MB | " + " | ".join(peers) + " |\n|---|" + "---|" * len(peers))
    with tempfile.TemporaryDirectory() as d:
        for kind, make in WORST.items():
            files = []
            for size in SIZES:
                files.append(pathlib.Path(d) / f"{size}")
                files[-1].write_text(make(random.Random(size), size), newline="")
            times = {}
            for _ in range(rounds):
                for name, command in peers.items():
                    lines, _ = measure(command, files)
                    for size, line in zip(SIZES, lines[1:], strict=True):
                        times.setdefault((name, size), []).append(float(line[1]))
            row = [" / ".join(f"{statistics.median(times[n, s]):.2f}" for s in SIZES) for n in peers]
            print(f"| {kind} | " + " | ".join(row) + " |")


def figure(value):
    """Three digits, without an exponent."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def reference(top, rounds):
    """Compares the parser and renderer with openai-harmony. Returns which results differ."""
    ours, rust = str(top / "ours"), str(top / "rust/release/peers")
    python = [str(top / "venv/bin/python"), str(pathlib.Path(__file__).parent / "measure.py"), "openai-harmony"]
    made = top / "conversations"
    # The binding takes conversations as JSON alone, and the reference remembers no message.
    rows = [
        ("parser: token, delta, channel, recipient", "parse", "parse", "parse", "completions", "ns a token"),
        ("parser: header token", "parse", "parse", "parse", "headers", "ns a token"),
        *((f"render {n:,} messages, from JSON", "render", "render", "render", f"conversation_{n}", "ms")
          for n in (10, 100, 1000)),
        ("render 1,000 messages, from memory", "render-messages", "render-messages", "render",
         "conversation_1000", "ms"),
        ("the same, all but the last seen before", "render-last", "render-messages", "render",
         "conversation_1000", "ms"),
    ]
    times, tokens, same = {}, {}, {}
    for _ in range(rounds):
        for what, own, native, binding, name, unit in rows:
            files = [made / f"{name}.0", made / f"{name}.1"]
            results = []
            for who, command in (
                (OURS, [ours, own]), ("native", [rust, "openai-harmony", native]), ("binding", [*python, binding]),
            ):
                (_, _, line), _ = measure(command, files)
                took = float(line[1]) * (1e6 / int(line[2]) if unit == "ns a token" else 1)
                times.setdefault((what, who), []).append(took)
                results.append(line[2:])
            tokens[what] = int(results[0][0])
            same[what] = same.get(what, True) and results == results[:1] * 3
    print("\n| what | unit | tokens | envoy-harmony | openai-harmony | ratio | its Python binding | same result |")
    print("|---" * 8 + "|")
    for what, *_, unit in rows:
        own, native, binding = (statistics.median(times[what, who]) for who in (OURS, "native", "binding"))
        print(f"| {what} | {unit} | {tokens[what]:,} | {figure(own)} | {figure(native)} | {native / own:.1f}x "
              f"| {figure(binding)} | {'yes' if same[what] else 'NO'} |")
    return [what for what in same if not same[what]]


def main(top, rounds=5):
    top, rounds = pathlib.Path(top), int(rounds)
    peers = commands(top)
    print(machine() + "\n")
    other, mean = throughput(peers, top / "corpus", rounds)
    other += reference(top, rounds)
    # The other libraries take quadratic time with this input, or crash.
    worst({n: peers[n] for n in (OURS, BASE)}, rounds)
    faults = [f"other results than ours: {'; '.join(other)}"] if other else []
    if mean < LIMIT:
        faults.append(f"the mean ratio to {BASE} is {mean:.2f}x, and the limit {LIMIT}x")
    if faults:
        sys.exit("compare.py: " + "; ".join(faults))


if __name__ == "__main__":
    main(*sys.argv[1:])
