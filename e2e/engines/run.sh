#!/usr/bin/env bash
# Tests the dialects with real engines on the CPU: vLLM and SGLang over HTTP and gRPC,
# and llama.cpp's server, with tiny gpt-oss models of random weights.
#
#     run.sh test [PART...]     installs what the parts need, starts and tests one after the
#                               other, and replays what the filter recorded of that
#     run.sh install [PART...]  only installs it
#     run.sh serve PART         runs a part's engine in the foreground, on PORT
#
# Without names all parts of the table below are meant. Everything comes from package
# registries and is kept in .engines, up to 8 GB. PYTHON is a Python 3.11; PORT is 18100 by
# default.
set -euo pipefail
cd "$(dirname "$0")/../.."

dir=$PWD/.engines here=e2e/engines
port=${PORT:-18100}
context=8192 model=gpt-oss-tiny # as in real_engines_test.go
seal_keys='["MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="]' # of NewConfig in e2e/stack
export VLLM_SYSTEM_START_DATE=2026-11-21

# What is tested: a part, its engine's family, the variable with the engine's URL, the tests.
#  - vllm-flat caches the prefixes of all layers alike.
#  - sglang is as SGLang is by default: each event has all ids of the reply.
#  - sglang-overlap has the overlap schedule, which no player can follow.
parts='
vllm                 vllm      VLLM                 (VLLM|Render|RandomVLLM|KillVLLM|Probes)
vllm-flat            vllm      VLLM_FLAT            Diagnosis
vllm-prefill         vllm      VLLM_PREFILL         PrefillVLLM
vllm-grpc            vllm      VLLM_GRPC            (VLLMGRPC|RandomVLLMGRPC|KillVLLMGRPC|Probes)
llamacpp             llamacpp  LLAMACPP             (LlamaCPP|Probes)
sglang               sglang    SGLANG               (SGLang|RandomSGLang|KillSGLang|Probes)
sglang-incremental   sglang    SGLANG_INCREMENTAL   (SGLangIncremental|RandomSGLangIncremental|Probes)
sglang-no-tokenizer  sglang    SGLANG_NO_TOKENIZER  (SGLangNoTokenizer|Probes)
sglang-grpc          sglang    SGLANG_GRPC          (SGLangGRPC|RandomSGLangGRPC|KillSGLangGRPC|Probes)
sglang-overlap       sglang    SGLANG_OVERLAP       SGLangOverlap
'
names=$(awk 'NF { print $1 }' <<<"$parts")

bold='' plain=''
if [ -t 1 ]; then
	bold=$'\e[1m' plain=$'\e[0m'
fi
say() { echo "$bold$*$plain"; }
fail() {
	printf 'make test-engines: %s\n' "$@" >&2
	exit 1
}

# progress shows how far a long step is: on a terminal in one line, which the end of the step clears.
progress() {
	if [ -t 1 ]; then
		printf '\r\e[K%s' "${1:+  $1}"
	fi
}

# column NUMBER PART prints a column of a part's row.
column() { awk -v part="$2" -v number="$1" '$1 == part { print $number }' <<<"$parts"; }

# selected prints the parts that are named, in the table's order, or all.
selected() {
	local part
	for part in "$@"; do
		[ -n "$(column 1 "$part")" ] || fail "there is no part $part. The parts are: $(paste -sd ' ' <<<"$names")"
	done
	for part in $names; do
		if [ $# = 0 ] || [[ " $* " == *" $part "* ]]; then
			echo "$part"
		fi
	done
}

# families prints the families of parts, each once.
families() {
	local part
	for part in "$@"; do column 2 "$part"; done | awk '!seen[$0]++'
}

python_of() { echo "$dir/$1/venv/bin/python"; }

# The vocabulary, which tiktoken and openai-harmony would download. tiktoken looks for a
# file named by the SHA-1 of the URL.
export TIKTOKEN_ENCODINGS_BASE=$dir/models/vocabulary TIKTOKEN_CACHE_DIR=$dir/models/vocabulary
vocabulary() {
	mkdir -p "$dir/models/vocabulary"
	local loader
	go mod download github.com/pkoukk/tiktoken-go-loader
	loader=$(go list -m -f '{{.Dir}}' github.com/pkoukk/tiktoken-go-loader)
	install -m 0644 "$loader/assets/o200k_base.tiktoken" "$dir/models/vocabulary/"
	ln -sf o200k_base.tiktoken "$dir/models/vocabulary/fb374d419588a4632f3f557e76b4b70aebbca790"
}

check_machine() {
	[ "$(uname -sm)" = 'Linux x86_64' ] || fail "the engines are wheels for Linux on x86-64: run it there"
	for tool in go gcc nm objdump; do
		command -v "$tool" >/dev/null || fail "$tool is missing" "On Debian, as root: apt-get install --no-install-recommends gcc libc6-dev binutils"
	done
	grep -qw avx2 /proc/cpuinfo || fail "the engines need a CPU with AVX2"
}

# check_space FAMILY compares the disk with what an installation has at most, with its downloads.
check_space() {
	local free needed=4
	case $1 in
	llamacpp) needed=2 ;;
	vllm | sglang) needed=5 ;;
	esac
	free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1048576) }')
	[ "$free" -ge "$needed" ] || fail "$needed GB of free disk space are needed for $dir/$1: $free GB are free"
}

find_python() {
	local candidate
	for candidate in "${PYTHON:-}" python3.11 python3; do
		if [ -n "$candidate" ] && "$candidate" -c 'import sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
			echo "$candidate"
			return
		fi
	done
	fail "$here/requirements needs Python 3.11 with venv: install it, or set PYTHON" >&2
}

# Each step leaves a file with the checksum of its inputs. Their times are those of the checkout.
checksum() { cat "$@" | sha256sum; }
is_done() { [ -f "$1" ] && [ "$(checksum "${@:2}")" = "$(cat "$1")" ]; }

install_family() {
	local family=$1 venv=$dir/$1/venv python requirements=$here/requirements/$1.txt found
	local inputs=("$requirements" "$here/stubs.py" "$here/kernels.py")
	python=$(python_of "$family")
	if ! is_done "$venv/.done" "${inputs[@]}"; then
		rm -rf "$venv"
		check_space "$family"
		say "Installing $family into .engines/$family, some minutes:"
		found=$(find_python)
		"$found" -m venv "$venv"
		nice "$python" -m pip install --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: -r "$requirements" |
			packages "$(grep -c '^[^#]' "$requirements")"
		if [ "$family" != llamacpp ]; then
			nice "$python" $here/stubs.py "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
			[ "$family" != vllm ] || nice "$python" $here/kernels.py "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
			"$python" -c 'import torch' || fail "torch does not load with the stub CUDA libraries of $here/stubs.py"
		fi
		checksum "${inputs[@]}" >"$venv/.done"
	fi
	install_model "$family"
}

# packages reads pip's output and shows how many of the packages have come.
packages() {
	local line count=0
	while read -r line; do
		case $line in
		Collecting*) progress "$((++count)) of $1 packages downloaded" ;;
		Installing*) progress unpacking ;;
		esac
	done
	progress
	echo "  $count packages"
}

# install_model FAMILY makes the model that it serves. The families have one without weights in
# common; its tokenizer is in that of llama.cpp too.
install_model() {
	local hf=$dir/models/hf made=$dir/models/hf.done files=()
	if [ "$1" = llamacpp ]; then
		made=$dir/models/llamacpp.done files=("$dir/models/llamacpp.gguf")
	fi
	if ! is_done "$made" "$here/model.py"; then
		say "Making the tiny model in .engines/models:"
		vocabulary
		nice "$(python_of "$1")" $here/model.py "$dir/models/vocabulary/o200k_base.tiktoken" "$hf" "${files[@]}"
		checksum "$here/model.py" | tee "$dir/models/hf.done" >"$made"
	fi
}

install_engines() {
	local family
	check_machine
	for family in $(families "$@"); do
		install_family "$family"
	done
}

# serve PART replaces the process with an engine.
serve() {
	local family python
	family=$(column 2 "$1")
	python=$(python_of "$family")
	export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 DO_NOT_TRACK=1 OMP_NUM_THREADS=1
	export PYTHONPATH=$PWD/$here PYTHONDONTWRITEBYTECODE=1
	"serve_$family" "$1"
}

# No CUDA graphs on a CPU; no chunked prefill, because it crashes the engine if a request has a seed.
serve_vllm() {
	export VLLM_TARGET_DEVICE=cpu VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind
	export VLLM_CACHE_ROOT=$dir/cache VLLM_CONFIG_ROOT=$dir/cache
	local options=(
		--model "$dir/models/hf" --load-format dummy --served-model-name "$model" --host 127.0.0.1 --port "$port"
		--dtype bfloat16 --enforce-eager --max-model-len "$context" --max-num-seqs 16 --max-num-batched-tokens $((context + 4096))
		--enable-prefix-caching --logits-processors player:Player
	)
	case $1 in
	# By default only a prompt's end is kept of layers with a sliding window. Blocks of 32 tokens are the smallest
	# that vLLM has on a CPU.
	vllm-flat) options+=(--prefix-cache-retention-interval 32 --block-size 32) ;;
	# Either of a pair that hands prompts over, by TCP or, on one machine, by shared memory.
	vllm-prefill)
		export UCX_TLS=tcp,self,sm VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1 VLLM_NIXL_SIDE_CHANNEL_PORT=$((port + 1))
		options+=(--kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_buffer_device":"cpu"}')
		;;
	vllm-grpc) exec nice "$python" -m vllm.entrypoints.launchers.grpc_server "${options[@]}" ;;
	esac
	exec nice "$python" -m vllm.entrypoints.openai.api_server "${options[@]}" \
		--enable-prompt-tokens-details --enable-scale-out --enable-auto-tool-choice --tool-call-parser openai
}

serve_llamacpp() { exec nice "$python" $here/llamacpp.py "$dir/models/llamacpp.gguf" "$port"; }

# Attention in torch is what SGLang falls back to, without naming it: gpt-oss refuses the name. It reads beyond the
# smaller cache of a hybrid one, and of its default share of the memory nothing is left for a cache. The watchdog ends
# a server whose machine is busy with other things for five minutes.
serve_sglang() {
	export SGLANG_USE_CPU_ENGINE=1
	export PYTHONPATH=$PYTHONPATH:$PWD/$here/sglang_cpu
	local options=(
		--model-path "$dir/models/hf" --load-format dummy --served-model-name "$model" --host 127.0.0.1 --port "$port"
		--device cpu --dtype bfloat16 --context-length "$context" --max-running-requests 16 --max-total-tokens 65536
		--mem-fraction-static 0.2 --disable-hybrid-swa-memory --chunked-prefill-size -1 --watchdog-timeout 1800
		--cuda-graph-backend-decode=disabled --cuda-graph-backend-prefill=disabled
		--grammar-backend xgrammar --enable-custom-logit-processor --enable-metrics --enable-cache-report
	)
	case $1 in
	sglang-overlap) export SGLANG_PLUGINS=sinks ;;
	*) options+=(--disable-overlap-schedule) ;;
	esac
	case $1 in
	sglang-incremental) options+=(--incremental-streaming-output) ;;
	sglang-no-tokenizer) options+=(--skip-tokenizer-init) ;;
	sglang-grpc) options+=(--smg-grpc-mode --skip-server-warmup) ;;
	esac
	exec nice "$python" -m sglang.launch_server "${options[@]}"
}

# The engine that runs. It is a group of processes: SGLang's and vLLM's schedulers are processes of their own, which
# would outlive their parent.
engine=''
stop_engine() {
	if [ -n "$engine" ]; then
		kill -- -"$engine" 2>/dev/null || true
		wait "$engine" 2>/dev/null || true
		kill -KILL -- -"$engine" 2>/dev/null || true
		engine=''
	fi
}

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }

# A server listens before it has loaded its model; only HTTP reports that it is ready.
ready() {
	listens && { [[ $1 == *-grpc ]] || healthy; }
}
healthy() {
	local status
	exec 3<>"/dev/tcp/127.0.0.1/$port"
	printf 'GET /health HTTP/1.0\r\n\r\n' >&3
	read -r status <&3 || status=''
	exec 3>&-
	[[ $status == *' 200 '* ]]
}

# test_part starts a part's engine, waits until it is ready, runs the part's tests with its URL in their variable, and
# stops it.
test_part() {
	local part=$1 log=$dir/$1.log start=$SECONDS status=0 tests
	tests="^TestReal$(column 4 "$part")\$"
	say "Starting $part on port $port (log: .engines/$part.log):"
	set -m
	serve "$part" >"$log" 2>&1 &
	engine=$!
	set +m
	until ready "$part"; do
		kill -0 "$engine" 2>/dev/null || { tail -n 30 "$log" >&2; fail "$part does not start: see its log $log"; }
		[ $((SECONDS - start)) -lt 600 ] || fail "$part is not ready after 600 s: see its log $log"
		progress "$((SECONDS - start)) s"
		sleep 1
	done
	progress
	say "ready after $((SECONDS - start)) s; go test -tags engines ./e2e/engines -run '$tests'"
	env "ENGINE_TEST_$(column 3 "$part")=http://127.0.0.1:$port" \
		go test -tags engines -count 1 -timeout 30m -v -run "$tests" ./e2e/engines || status=$?
	stop_engine
	say "$part took $((SECONDS - start)) s"
	return "$status"
}

# test_grammars FAMILY compiles the grammars of client requests with the xgrammar that it brings.
test_grammars() {
	say "Compiling the grammars of client requests with the xgrammar of $1:"
	ENGINE_TEST_PYTHON=$(python_of "$1") go test -tags engines -count 1 -timeout 20m -v -run '^TestXgrammar' ./filter/constraint
}

test_parts() {
	local part family status=0
	trap stop_engine EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	if listens; then
		fail "port $port is in use: set PORT to a free one"
	fi
	go vet -tags engines ./e2e/engines ./filter/constraint
	install_engines "$@"
	for family in $(families "$@"); do
		[ "$family" = llamacpp ] || test_grammars "$family" || status=$?
	done
	rm -rf "$dir/records"
	export E2E_RECORDS=$dir/records
	for part in "$@"; do
		test_part "$part" || status=$?
	done
	say "Replaying the exchanges with the engines:"
	ENVOY_HARMONY_RESPONSES_SEAL_KEYS=$seal_keys go run ./cmd/envoy-harmony replay "$dir/records" || status=$?
	exit "$status"
}

command=${1:-}
case $command in
install | test)
	shift
	chosen=$(selected "$@")
	# shellcheck disable=SC2086 # names of parts, which are words
	if [ "$command" = test ]; then test_parts $chosen; else install_engines $chosen; fi
	;;
serve)
	[ $# = 2 ] || fail "name the part to serve: $(paste -sd ' ' <<<"$names")"
	chosen=$(selected "$2")
	[ -e "$dir/$(column 2 "$chosen")/venv/.done" ] || fail "$chosen is not installed: run $here/run.sh install $chosen"
	serve "$chosen"
	;;
*) fail "unknown command $command: see the first lines of $here/run.sh" ;;
esac
