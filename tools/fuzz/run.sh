#!/usr/bin/env bash
# Runs fuzz targets: run.sh TIME [TARGET...]. Without targets it runs all of them.
#
# Before Go 1.27 the fuzzing engine sometimes fails with "context deadline exceeded" and
# no failing input when the time is up (https://go.dev/issue/75804). Only that is no
# failure here, and only if the target has come to new inputs: a target that has a failing
# input, or fails in another way, or never gets beyond its corpus, fails.
set -euo pipefail

time=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# ended_late reports whether the log has nothing but the defect of the engine.
ended_late() {
	grep -q '^ *context deadline exceeded$' "$log" &&
		grep -q 'now fuzzing with' "$log" &&
		! grep -qE 'Failing input written|panic:|fatal error:|hung or terminated|_test\.go:[0-9]+:|^fuzz: .*exited|DATA RACE|^ *--- FAIL: .*/' "$log"
}

fuzz() {
	local pkg=$1 target=$2
	echo "== $pkg $target"
	if go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x "$pkg" >"$log" 2>&1; then
		tail -n 2 "$log"
		return
	fi
	if ended_late; then
		echo "the engine ended late, without a failing input: not a failure"
		return
	fi
	cat "$log"
	return 1
}

status=0
found=0
for pkg in $(go list ./...); do
	# The names are read from the source: to list them, every test would be built.
	dir=$(go list -f '{{.Dir}}' "$pkg")
	for target in $(cat "$dir"/*_test.go 2>/dev/null | sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p'); do
		if [ $# -gt 0 ] && [[ " $* " != *" $target "* ]]; then
			continue
		fi
		found=$((found + 1))
		fuzz "$pkg" "$target" || status=1
	done
done
if [ $# -gt 0 ] && [ "$found" -lt $# ]; then
	echo "of $# targets there are only $found" >&2
	status=1
fi
exit "$status"
