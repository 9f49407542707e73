#!/usr/bin/env bash
# Tests all stores, Redis and PostgreSQL with real servers. Flags are those of go test,
# such as -race. "run.sh -- COMMAND..." runs another command with the servers. STORE_TEST_REDIS,
# STORE_TEST_REDIS_CLUSTER and STORE_TEST_POSTGRES can be URLs of servers to use, and
# STORE_TEST_POSTGRES_RESTART a command that restarts the last one. Other
# servers are started for the tests, on free ports, with their data in a temporary
# folder. As root, a small file system is mounted for a tablespace that a test fills.
# If servers are missing and the user is root, their Debian packages are
# installed.
set -euo pipefail
cd "$(dirname "$0")/../.."

bold='' plain=''
if [ -t 1 ]; then
	bold=$'\e[1m' plain=$'\e[0m'
fi
say() { echo "$bold$*$plain"; }

# find_postgres prints the folder of PostgreSQL's commands, which is not in PATH on
# Debian.
find_postgres() {
	local initdb
	initdb=$(command -v initdb || find /usr/lib/postgresql -name initdb 2>/dev/null | sort -V | tail -n 1)
	[ -n "$initdb" ] && dirname "$(readlink -f "$initdb")"
}

own_redis=${STORE_TEST_REDIS:+yes} own_cluster=${STORE_TEST_REDIS_CLUSTER:+yes} own_postgres=${STORE_TEST_POSTGRES:+yes}
missing=()
if [ -z "$own_redis$own_cluster" ] && ! command -v redis-server >/dev/null; then
	missing+=(redis-server)
fi
if [ -z "$own_postgres" ] && ! find_postgres >/dev/null; then
	missing+=(postgresql)
fi
if [ ${#missing[@]} -gt 0 ]; then
	if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
		echo "make test-stores: these packages are missing: ${missing[*]}" >&2
		echo "Install them, on Debian as root: apt-get install --no-install-recommends ${missing[*]}" >&2
		echo "Or set STORE_TEST_REDIS and STORE_TEST_POSTGRES to URLs of servers that may be written to." >&2
		exit 1
	fi
	say "Installing the Debian packages ${missing[*]}:"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

dir=$(mktemp -d)
redis_pids=() postgres='' up='' mounted=''
stop() {
	status=$?
	trap - EXIT
	if [ -n "$postgres" ]; then
		as_postgres "$postgres/pg_ctl" stop -s -m immediate -D "$dir/postgres" || true
	fi
	for pid in "${redis_pids[@]}"; do
		kill "$pid" 2>/dev/null && wait "$pid" || true
	done
	if [ -z "$up" ]; then
		tail -n 20 "$dir"/*.log "$dir/postgres/log" 2>/dev/null || true
	fi
	if [ -n "$mounted" ]; then
		umount "$mounted" || umount -l "$mounted" || true
	fi
	rm -rf --one-file-system "$dir"
	exit "$status"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Four different free ports, reserved at the same time.
read -r redis_port cluster_port bus_port postgres_port < <(python3 -c 'import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*(s.getsockname()[1] for s in held))')

# retry COMMAND... runs a command until it succeeds, for up to ten seconds.
retry() {
	for _ in $(seq 100); do
		if "$@" >/dev/null 2>&1; then
			return
		fi
		sleep 0.1
	done
	echo "no success within ten seconds: $*" >&2
	exit 1
}

# start_redis NAME PORT OPTION... starts a server and waits until it answers.
start_redis() {
	local name=$1 port=$2
	shift 2
	mkdir "$dir/$name"
	redis-server --bind 127.0.0.1 --port "$port" --dir "$dir/$name" --save '' --appendonly no "$@" >"$dir/$name.log" 2>&1 &
	redis_pids+=($!)
	retry redis-cli -p "$port" ping
}

# PostgreSQL does not run as root.
as_postgres() {
	if [ "$(id -u)" -eq 0 ]; then
		(cd "$dir" && runuser -u "$(id -nu postgres 2>/dev/null || echo nobody)" -- "$@")
	else
		"$@"
	fi
}

if [ -z "$own_redis" ]; then
	say "Starting $(redis-server --version | cut -d ' ' -f 1-3) on port $redis_port"
	start_redis redis "$redis_port"
	export STORE_TEST_REDIS=redis://127.0.0.1:$redis_port
fi

# Like every cluster, a cluster of one node rejects scripts that use keys of several
# hash slots.
if [ "${1:-}" != -- ] && [ -z "$own_cluster" ] && command -v redis-server >/dev/null; then
	say "Starting a Redis cluster on port $cluster_port"
	start_redis cluster "$cluster_port" --cluster-enabled yes --cluster-port "$bus_port"
	# shellcheck disable=SC2046
	redis-cli -p "$cluster_port" cluster addslots $(seq 0 16383) >/dev/null
	cluster_is_ok() { redis-cli -p "$cluster_port" cluster info | grep cluster_state:ok; }
	retry cluster_is_ok
	export STORE_TEST_REDIS_CLUSTER=redis-cluster://127.0.0.1:$cluster_port
fi

if [ -z "$own_postgres" ]; then
	bin=$(find_postgres)
	say "Starting $("$bin/postgres" --version) on port $postgres_port"
	chmod 711 "$dir"
	mkdir "$dir/postgres"
	if [ "$(id -u)" -eq 0 ]; then
		chown "$(id -nu postgres 2>/dev/null || echo nobody)" "$dir/postgres"
	fi
	as_postgres "$bin/initdb" -D "$dir/postgres" --username postgres --auth trust --no-sync >"$dir/initdb.log"
	postgres=$bin
	as_postgres "$bin/pg_ctl" start -s -w -D "$dir/postgres" -l "$dir/postgres/log" \
		-o "-c listen_addresses=127.0.0.1 -p $postgres_port -k $dir/postgres -c fsync=off -c max_connections=200"
	cat >"$dir/restart" <<-EOF
		cd "$dir"
		$(if [ "$(id -u)" -eq 0 ]; then echo "runuser -u '$(id -nu postgres 2>/dev/null || echo nobody)' --"; fi) \
			"$bin/pg_ctl" restart -s -w -m fast -D "$dir/postgres" -l "$dir/postgres/log"
	EOF
	export STORE_TEST_POSTGRES_RESTART="sh $dir/restart"
	export STORE_TEST_POSTGRES="postgres://postgres@127.0.0.1:$postgres_port/postgres?sslmode=disable"

	# A small disk with a tablespace, which a test fills.
	mkdir "$dir/small"
	if [ "${1:-}" != -- ] && [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=32m,mode=755 none "$dir/small" 2>"$dir/mount.log"; then
		mounted=$dir/small
		mkdir "$dir/small/data"
		chown "$(id -nu postgres 2>/dev/null || echo nobody)" "$dir/small/data"
		as_postgres "$bin/psql" -q -X -h 127.0.0.1 -p "$postgres_port" -U postgres postgres \
			-c "CREATE TABLESPACE small LOCATION '$dir/small/data'"
		export STORE_TEST_POSTGRES_SMALL=$dir/small
	fi
fi
if [ "${1:-}" != -- ] && [ -z "${STORE_TEST_POSTGRES_SMALL:-}" ]; then
	say "PostgreSQL on a full disk is not tested: that needs root, a mount, and a PostgreSQL that this script starts."
fi

up=yes
status=0
if [ "${1:-}" = -- ]; then
	shift
	say "$*"
	"$@" || status=$?
	exit "$status"
fi
say "go test $* ./filter/store/..."
go test -count 1 -timeout 10m "$@" ./filter/store/... || status=$?
say "go test $* ./e2e/stores -run Stores"
go test -count 1 -timeout 10m "$@" ./e2e/stores -run Stores || status=$?
exit "$status"
