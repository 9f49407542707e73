"""Measures package harmony and other libraries and prints the results as tables.

    compare.py DIR [ROUNDS]

DIR contains the output of peers.sh. Each measurement is a new process, which warms up
with other data of the same kind and then measures data that it has not processed
before. Times are CPU times. In each round, every library runs once; the tables show
the medians of the rounds.
"""

import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

BASE = "bpe-openai"
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
        "envoy-harmony": [str(top / "ours"), "encode"],
        "bpe-openai": [rust, "bpe-openai"],
        "fastokens": [*python, "fastokens", "encode"],
        "tiktoken-rs": [rust, "tiktoken-rs"],
        "tiktoken": [*python, "tiktoken", "encode"],
        "openai-harmony": [*python, "openai-harmony", "encode"],
        "tiktoken-go": [str(top / "tiktokengo")],
    }


def measure(command, files):
    """The output lines of one process and its peak memory in MB."""
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen([*command, *map(str, files)], stdout=out, env=os.environ | {"GOMAXPROCS": "1", "RAYON_NUM_THREADS": "1"})
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"{command[0]} failed")
        out.seek(0)
        lines = [line.split() for line in out.read().splitlines()]
    return lines, usage.ru_maxrss / 1024


def throughput(peers, corpus, rounds):
    speed, exact, load, memory = {}, {}, {}, {}
    for r in range(rounds):
        for kind in KINDS:
            part = 1 + r % 5
            warm, fresh = corpus / f"{kind}.{(part + 1) % 6}", corpus / f"{kind}.{part}"
            want = None
            for name, command in peers.items():
                (first, _, line), peak = measure(command, [warm, fresh])
                speed.setdefault((name, kind), []).append(fresh.stat().st_size / float(line[1]) / 1e3)
                load.setdefault(name, []).append(float(first[1]))
                memory.setdefault(name, []).append(peak)
                want = line[3] if name == BASE else want
                exact.setdefault((name, kind), []).append(line[3])
    print("| encoder | " + " | ".join(f"{k} MB/s" for k in KINDS) + " | geometric mean | exact | cold start ms | peak MB |")
    print("|---|" + "---|" * (len(KINDS) + 4))
    for name in peers:
        cells, ratios = [], []
        for kind in KINDS:
            own = statistics.median(speed[name, kind])
            ratios.append(own / statistics.median(speed[BASE, kind]))
            cells.append(f"{own:.1f} ({ratios[-1]:.2f}x)")
        same = "".join("y" if exact[name, k] == exact[BASE, k] else "N" for k in KINDS)
        print(f"| {name} | {' | '.join(cells)} | {statistics.geometric_mean(ratios):.2f}x | {same} "
              f"| {statistics.median(load[name]):.1f} | {statistics.median(memory[name]):.0f} |")


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


def reference(top, rounds):
    """Compares the parser and renderer with openai-harmony."""
    python = [str(top / "venv/bin/python"), str(pathlib.Path(__file__).parent / "measure.py"), "openai-harmony"]
    ours = str(top / "ours")
    made = top / "conversations"
    rows = [
        ("parser: token, delta, channel, recipient", "parse", "parse", "completions", "ns a token"),
        ("parser: header token", "parse", "parse", "headers", "ns a token"),
        *((f"render {n:,} messages, from JSON", "render", "render", f"conversation_{n}", "ms") for n in (10, 100, 1000)),
        ("render 1,000 messages, from memory", "render-messages", "render", "conversation_1000", "ms"),
        ("the same, all but the last seen before", "render-last", "render", "conversation_1000", "ms"),
    ]
    times, tokens, same = {}, {}, {}
    for _ in range(rounds):
        for what, own, theirs, name, unit in rows:
            files = [made / f"{name}.0", made / f"{name}.1"]
            result = []
            for command in ([ours, own], [*python, theirs]):
                (_, _, line), _ = measure(command, files)
                took = float(line[1]) * (1e6 / int(line[2]) if unit == "ns a token" else 1)
                times.setdefault((what, command[0]), []).append(took)
                result.append(line[2:])
            tokens[what] = int(result[0][0])
            same[what] = same.get(what, True) and result[0] == result[1]
    print("\n| what | unit | tokens | envoy-harmony | openai-harmony | ratio | same result |\n|---|---|---|---|---|---|---|")
    for what, _, _, _, unit in rows:
        own, theirs = (statistics.median(times[what, c]) for c in (ours, python[0]))
        print(f"| {what} | {unit} | {tokens[what]:,} | {own:.3g} | {theirs:,.0f} | {theirs / own:.0f}x | {'yes' if same[what] else 'NO'} |")


def main(top, rounds=5):
    top, rounds = pathlib.Path(top), int(rounds)
    peers = commands(top)
    throughput(peers, top / "corpus", rounds)
    reference(top, rounds)
    # The other libraries take quadratic time with this input, or crash.
    worst({n: peers[n] for n in ("envoy-harmony", BASE)}, rounds)


if __name__ == "__main__":
    main(*sys.argv[1:])
