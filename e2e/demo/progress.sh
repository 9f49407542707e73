#!/usr/bin/env bash
# Shows what "go build -v" prints: on a terminal one line with the number of packages that were
# compiled and the last of them, elsewhere a line for each hundred. Everything else is an error
# or a download, and is printed as it is.
set -euo pipefail

terminal=''
if [ -t 1 ]; then
	terminal=yes
fi
packages=0

while IFS= read -r line; do
	if ! [[ $line =~ ^[A-Za-z0-9._~/+-]+$ ]]; then
		if [ -n "$terminal" ]; then
			printf '\r\e[K'
		fi
		printf '%s\n' "$line"
		continue
	fi

	packages=$((packages + 1))
	if [ -n "$terminal" ]; then
		# A line that wraps could not be overwritten.
		printf '\r\e[K%s' "$(printf '%5d packages  %s' "$packages" "$line" | cut -c 1-79)"
	elif [ $((packages % 100)) -eq 0 ]; then
		printf '%d packages\n' "$packages"
	fi
done

if [ -n "$terminal" ] && [ "$packages" -gt 0 ]; then
	printf '\r\e[K'
fi
