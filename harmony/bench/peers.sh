#!/bin/sh
# Builds other encoders of o200k_base and the reference parser and renderer, from
# package registries, and compares them with package harmony.
#
#     peers.sh [ROUNDS]
#
# Needs Go, Cargo with a C compiler, and Python 3. Downloads and builds are in the directory
# $BENCH_DIR, by default .peers in this folder.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=${BENCH_DIR:-$here/.peers}
command -v cargo >/dev/null || { echo "peers.sh: the Rust peers need cargo" >&2; exit 1; }

mkdir -p "$dir/vocabulary" "$dir/texts"
[ -x "$dir/venv/bin/python" ] || python3 -m venv "$dir/venv"
pip="$dir/venv/bin/python -m pip --quiet --disable-pip-version-check"
$pip install --no-deps -r "$here/../differential/requirements.txt"

# The texts, from two packages.
[ -f "$dir/texts/Django-5.2.tar.gz" ] || $pip download --no-deps --no-binary :all: -d "$dir/texts" Django==5.2
[ -f "$dir/texts/botocore-1.40.0-py3-none-any.whl" ] || $pip download --no-deps -d "$dir/texts" botocore==1.40.0
[ -f "$dir/corpus/prose.0" ] || "$dir/venv/bin/python" "$here/corpus.py" \
	"$dir/texts/Django-5.2.tar.gz" "$dir/texts/botocore-1.40.0-py3-none-any.whl" "$dir/corpus"

# The Python packages would download the vocabulary, so use the copy in the loader
# module. tiktoken's cache uses the SHA-1 of the download URL as file name.
loader=$(cd "$here" && go list -m -f '{{.Dir}}' github.com/pkoukk/tiktoken-go-loader)
for name in o200k_base.tiktoken fb374d419588a4632f3f557e76b4b70aebbca790; do
	install -m 0644 "$loader/assets/o200k_base.tiktoken" "$dir/vocabulary/$name"
done
export TIKTOKEN_ENCODINGS_BASE="$dir/vocabulary" TIKTOKEN_CACHE_DIR="$dir/vocabulary"

"$dir/venv/bin/python" "$here/conversations.py" "$dir/corpus" "$dir/conversations"
cargo build --quiet --locked --release --manifest-path "$here/rust/Cargo.toml" --target-dir "$dir/rust"
(cd "$here" && go build -o "$dir/ours" ./ours && go build -o "$dir/tiktokengo" ./tiktokengo)
exec "$dir/venv/bin/python" "$here/compare.py" "$dir" "${1:-5}"
