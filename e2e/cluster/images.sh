#!/usr/bin/env bash
# Builds the container images of the test cluster as archives, with buildah:
#
#	images.sh FOLDER ENVOY ENVOY_GATEWAY PROGRAMS
#
# PROGRAMS is the folder of envoy-harmony, engine-sim and pause, static. Each image has
# nothing but its program, and what it is linked with.
set -euo pipefail
out=$(realpath -m "$1") envoy=$2 gateway=$3 programs=$4
mkdir -p "$out"
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# image NAME USER PROGRAM FILE... writes an image with the program as its entry point,
# /usr/local/bin/NAME, and the files at their own paths.
image() {
	local name=$1 user=$2 program=$3 container file
	shift 3
	rm -rf "$root/files"
	install -D -m 0755 "$program" "$root/files/usr/local/bin/$name"
	mkdir -p -m 1777 "$root/files/tmp"
	for file in "$@"; do
		install -D -m 0755 "$file" "$root/files$file"
	done
	container=$(buildah from scratch)
	buildah copy -q "$container" "$root/files" / >/dev/null
	buildah config --user "$user" --env PATH=/usr/local/bin --entrypoint "[\"/usr/local/bin/$name\"]" "$container"
	rm -f "$out/$name.tar"
	buildah commit -q "$container" "docker-archive:$out/$name.tar:localhost/$name:test" >/dev/null
	buildah rm "$container" >/dev/null
}

# Libraries with which a program is linked, and the loader.
libraries() { ldd "$1" | grep -o '/[^ ]*' | sort -u; }

image pause 65535 "$programs/pause"
image engine-sim 65532 "$programs/engine-sim"
image envoy-harmony 65532 "$programs/envoy-harmony"
image envoy-gateway 65532 "$gateway"
# shellcheck disable=SC2046 # one argument for each library
image envoy 65532 "$envoy" $(libraries "$envoy")
