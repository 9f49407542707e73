#!/bin/sh
# Runs every differential script against the references from PyPI.
#
#     run.sh [COUNT [SEED]]
#
# The virtual environment and a copy of the vocabulary are in the directory
# $DIFFERENTIAL_DIR, by default .differential in this folder.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
dir=${DIFFERENTIAL_DIR:-$here/.differential}
count=${1:-10000}
seed=${2:-1}

mkdir -p "$dir/vocabulary"
if [ ! -x "$dir/venv/bin/python" ]; then
	python3 -m venv "$dir/venv"
fi
"$dir/venv/bin/pip" install --quiet --no-deps -r "$here/requirements.txt"

# The references would download the vocabulary, so use the copy in the loader module.
loader=$(cd "$root" && go list -m -f '{{.Dir}}' github.com/pkoukk/tiktoken-go-loader)
cp -f "$loader/assets/o200k_base.tiktoken" "$dir/vocabulary/"
chmod u+w "$dir/vocabulary/o200k_base.tiktoken"
# tiktoken's cache uses the SHA-1 of the download URL as file name.
cp -f "$dir/vocabulary/o200k_base.tiktoken" "$dir/vocabulary/fb374d419588a4632f3f557e76b4b70aebbca790"
export TIKTOKEN_ENCODINGS_BASE="$dir/vocabulary" TIKTOKEN_CACHE_DIR="$dir/vocabulary"

(cd "$root" && go build -o "$dir/envoy-harmony" ./cmd/envoy-harmony)
status=0
for script in encode render parse; do
	if [ -f "$here/$script.py" ]; then
		PYTHONDONTWRITEBYTECODE=1 "$dir/venv/bin/python" "$here/$script.py" "$dir/envoy-harmony" "$count" "$seed" || status=1
	fi
done
exit $status
