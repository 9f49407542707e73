"""The common part of the differential scripts: run envoy-harmony, report differences."""

import json
import subprocess
import sys


def run_lines(command, lines):
    """Runs a command with lines as input and returns its output lines as JSON."""
    run = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
    if run.returncode not in (0, 1):
        sys.exit(run.stderr)
    return [json.loads(line) for line in run.stdout.splitlines()]


class Differences:
    def __init__(self, name, seed):
        self.name, self.seed, self.count = name, seed, 0

    def add(self, what, case, inner, want, got):
        self.count += 1
        if self.count > 5:
            return
        print(f"--- {self.name} {what}\ncase {case}")
        for label, value in (("want", want), ("got ", got)):
            if value and isinstance(value, list) and isinstance(value[0], int):
                value = bytes(inner.decode_bytes(value)).decode("utf-8", "replace")
            print(label, repr(value))

    def report(self, total):
        print(f"{self.name}: {total} cases, {self.count} differences (seed {self.seed})")
        sys.exit(1 if self.count else 0)
