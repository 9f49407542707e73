#!/usr/bin/env bash
# Tests the Helm chart. The tools in .bin are built by make. Custom resource definitions
# come from Go modules (crds.txt). If Prometheus is missing and the user is root, its
# Debian package is installed. With -short, what needs Prometheus or Envoy is left out.
set -euo pipefail
cd "$(dirname "$0")/../.."

short=${1:-}
if [ "$short" != -short ] && ! { command -v prometheus && command -v promtool; } >/dev/null; then
	if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
		echo "make test-charts: the package prometheus is missing." >&2
		echo "Install it, on Debian as root: apt-get install --no-install-recommends prometheus" >&2
		exit 1
	fi
	echo "Installing the Debian package prometheus:"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus >/dev/null
fi

export CHARTS_CRDS=$PWD/.bin/crds
rm -rf "$CHARTS_CRDS"
mkdir -p "$CHARTS_CRDS"
while read -r module sum files; do
	case $module in '' | '#'*) continue ;; esac
	downloaded=$(go mod download -json "$module")
	grep -qF "\"Sum\": \"$sum\"" <<<"$downloaded" || { echo "make test-charts: $module has not the checksum of e2e/charts/crds.txt" >&2; exit 1; }
	dir=$(sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p' <<<"$downloaded")
	# The shell expands the braces and wildcards of crds.txt.
	eval "cp -f -- $dir/$files" "$CHARTS_CRDS/"
done <e2e/charts/crds.txt
chmod -R u+w "$CHARTS_CRDS"
# Some are templates of a chart.
sed -i '/^[[:space:]]*{{.*}}[[:space:]]*$/d' "$CHARTS_CRDS"/*

go vet -tags charts ./e2e/charts
go test -tags charts -count 1 -timeout 9m $short ./e2e/charts
