#!/usr/bin/env bash
# Compares with other gateways under the same load: "make load-peers". Arguments are
# flags of the load command. Installs smg into .venv-peers.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=$root/.venv-peers

if [ ! -x "$venv/bin/smg" ]; then
	echo "Installing smg into .venv-peers (PyPI, 150 MB of disk):"
	"${PYTHON:-python3}" -m venv "$venv"
	"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: 'smg>=1.13,<2'
fi
"$venv/bin/python" -m pip list --disable-pip-version-check 2>/dev/null | grep '^smg '

# smg would download the vocabulary, so use the copy in a Go module.
mkdir -p "$venv/vocabulary"
loader=$(cd "$root/harmony/bench" && go mod download github.com/pkoukk/tiktoken-go-loader && go list -m -f '{{.Dir}}' github.com/pkoukk/tiktoken-go-loader)
install -m 0644 "$loader/assets/o200k_base.tiktoken" "$venv/vocabulary/"

# vLLM's own frontend, before its engine on the CPU.
vllm=()
if [ -e "$root/.engines/vllm/venv/.done" ]; then
	vllm=(-vllm "$root/e2e/engines/run.sh")
else
	echo "vLLM's frontend: skipped: .engines is missing (e2e/engines/run.sh install vllm: 3 GB)"
fi

exec "$root/bin/load" -smg "$venv/bin/smg" -vocabulary "$venv/vocabulary" "${vllm[@]}" "$@"
