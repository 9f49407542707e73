#!/usr/bin/env bash
# Tests the Helm chart in a real Kubernetes cluster of one node, with a real Envoy
# Gateway. Everything is built from Go modules and installed from Debian packages, so
# that no container registry is needed. The cluster runs in namespaces of its own. It
# needs Linux and root, and does not run inside most containers.
set -euo pipefail
cd "$(dirname "$0")/../.."

cannot() {
	echo "make test-cluster cannot run here: $1" >&2
	exit 1
}

[ "$(uname -s)" = Linux ] || cannot "it needs Linux"
[ "$(id -u)" -eq 0 ] || cannot "it needs root, for containers and network namespaces"
unshare --net --mount --pid --fork true 2>/dev/null || cannot "this machine does not allow new namespaces"

declare -A packages=(
	[etcd]=etcd-server [containerd]=containerd [runc]=runc [buildah]=buildah [iptables]=iptables
	[conntrack]=conntrack [ip]=iproute2 [openssl]=openssl [/usr/lib/cni/ptp]=containernetworking-plugins
	[curl]=curl [jq]=jq
)
missing=()
for program in "${!packages[@]}"; do
	command -v "$program" >/dev/null || missing+=("${packages[$program]}")
done
if [ ${#missing[@]} -gt 0 ]; then
	command -v apt-get >/dev/null || cannot "these packages are missing: ${missing[*]}"
	echo "Installing the Debian packages ${missing[*]}:"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

bin=$PWD/.bin/cluster
gateway=$(cd tools/cluster/envoy-gateway && go list -m -f '{{.Dir}}' github.com/envoyproxy/gateway)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "Building the programs and their images:"
export CGO_ENABLED=0
go build -trimpath -o "$work/programs/" ./cmd/envoy-harmony ./cmd/engine-sim
(cd tools/cluster/node && go build -trimpath -o "$work/programs/" ./pause)
CGO_ENABLED=1 go vet -tags cluster ./e2e/cluster
go test -c -tags cluster -o "$work/cluster.test" ./e2e/cluster
e2e/cluster/images.sh "$work/images" "$(realpath "${ENVOY_BIN:-.bin/envoy}")" "$bin/envoy-gateway" "$work/programs"

# The chart of Envoy Gateway, as its release makes it.
cp -r "$gateway/charts/gateway-helm" "$work/gateway-helm"
chmod -R u+w "$work/gateway-helm"
sed 's#${GatewayImage}#localhost/envoy-gateway:test#; s#${GatewayImagePullPolicy}#IfNotPresent#' \
	"$work/gateway-helm/values.tmpl.yaml" >"$work/gateway-helm/values.yaml"

echo "Starting the cluster:"
export CLUSTER_GATEWAY_CHART=$work/gateway-helm CLUSTER_CHART=$PWD/charts/envoy-harmony PATH=$bin:$PWD/.bin:$PATH
e2e/cluster/node.sh "$bin" "$work/images" "$work/cluster.test" -test.v -test.timeout 12m "$@"
