#!/usr/bin/env bash
# Starts a Kubernetes cluster of one node, runs a command in it and ends it:
#
#	node.sh BIN IMAGES COMMAND...
#
# BIN has the programs of Kubernetes and dns; IMAGES has the container images, as OCI
# archives. The cluster lives in namespaces of its own (network, mounts, processes), so
# that the machine's network, iptables and folders stay as they are and everything ends
# with this script. It needs root, etcd, containerd, runc and the CNI plugins.
set -euo pipefail
bin=$(realpath "$1") images=$(realpath "$2")

if [ -z "${CLUSTER_DIR:-}" ]; then
	CLUSTER_DIR=$(mktemp -d)
	export CLUSTER_DIR
	status=0
	unshare --net --mount --uts --pid --fork --kill-child --mount-proc --propagation private "$0" "$@" || status=$?
	if [ ! -e "$CLUSTER_DIR/ready" ]; then
		echo "The cluster did not start. The last lines of its logs:" >&2
		tail -n 5 "$CLUSTER_DIR"/logs/*.log >&2 || true
	fi
	rm -rf "$CLUSTER_DIR"
	exit "$status"
fi
shift 2

# Addresses. The node has one interface, pods are routed through it (CNI plugin ptp), so
# that kube-proxy's rules apply to all traffic.
node=10.77.0.10 services=10.96.0.0/16 pods=10.88.0.0/16 api=10.96.0.1
dir=$CLUSTER_DIR
mkdir -p "$dir"/{logs,etcd,containerd,kubelet,cni,certs}

hostname node
ip link set lo up
ip link add name node0 type veth peer name node1 # there is nothing at the other end
ip addr add $node/24 dev node0
ip link set node0 up
ip link set node1 up
ip route add default dev node0
sysctl -q -w net.ipv4.ip_forward=1 net.ipv4.conf.all.route_localnet=1
mount --make-rshared /
mount -t tmpfs tmpfs /run
mkdir -p /var/lib/kubelet /var/lib/cni /var/log/pods /var/log/containers /run/lock
mount --bind "$dir/kubelet" /var/lib/kubelet
mount --make-rshared /var/lib/kubelet
mount -t tmpfs tmpfs /var/lib/cni
mount -t tmpfs tmpfs /var/log/pods
mount -t tmpfs tmpfs /var/log/containers
echo "nameserver $node" >"$dir/resolv.conf"

start() { # start NAME COMMAND...: runs a part of the cluster
	local name=$1
	shift
	"$@" >"$dir/logs/$name.log" 2>&1 &
}

await() { # await WHAT COMMAND...: waits until the command succeeds
	local what=$1
	shift
	for _ in $(seq 240); do
		if "$@" >/dev/null 2>&1; then
			return
		fi
		sleep 0.5
	done
	echo "node.sh: $what did not become ready" >&2
	exit 1
}

certs() {
	cd "$dir/certs"
	openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test-ca -keyout ca.key -out ca.crt
	openssl req -newkey rsa:2048 -nodes -subj /CN=kube-apiserver -keyout api.key -out api.csr
	printf 'subjectAltName=IP:127.0.0.1,IP:%s,IP:%s,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc' $node $api >api.ext
	openssl x509 -req -days 2 -in api.csr -CA ca.crt -CAkey ca.key -CAcreateserial -extfile api.ext -out api.crt
	openssl genrsa -out accounts.key 2048
	openssl rsa -in accounts.key -pubout -out accounts.pub
	cd - >/dev/null
}
certs >"$dir/logs/certs.log" 2>&1

token=$(openssl rand -hex 16)
echo "$token,admin,admin,system:masters" >"$dir/tokens.csv"
cat >"$dir/kubeconfig" <<END
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://$node:6443", certificate-authority: "$dir/certs/ca.crt"}}]
users: [{name: admin, user: {token: "$token"}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
END
export KUBECONFIG=$dir/kubeconfig
kubectl=$bin/kubectl

start etcd etcd --data-dir "$dir/etcd" --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 --unsafe-no-fsync
await etcd timeout 1 bash -c '</dev/tcp/127.0.0.1/2379'
start apiserver "$bin/kube-apiserver" --etcd-servers http://127.0.0.1:2379 --advertise-address $node --secure-port 6443 \
	--service-cluster-ip-range $services --authorization-mode RBAC --kubelet-preferred-address-types InternalIP --token-auth-file "$dir/tokens.csv" --allow-privileged \
	--tls-cert-file "$dir/certs/api.crt" --tls-private-key-file "$dir/certs/api.key" --client-ca-file "$dir/certs/ca.crt" \
	--service-account-issuer https://kubernetes.default.svc --service-account-key-file "$dir/certs/accounts.pub" --service-account-signing-key-file "$dir/certs/accounts.key"
await "the API server" "$kubectl" get --raw /readyz
start controllers "$bin/kube-controller-manager" --kubeconfig "$KUBECONFIG" --leader-elect=false --root-ca-file "$dir/certs/ca.crt" --service-account-private-key-file "$dir/certs/accounts.key"
start scheduler "$bin/kube-scheduler" --kubeconfig "$KUBECONFIG" --leader-elect=false

cat >"$dir/containerd.toml" <<END
version = 2
root = "$dir/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:test"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$dir/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "${CLUSTER_SNAPSHOTTER:-overlayfs}"
END
cat >"$dir/cni/10-pods.conflist" <<END
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "subnet": "$pods", "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
END
start containerd containerd --config "$dir/containerd.toml"
await containerd ctr --address /run/containerd.sock version
for image in "$images"/*.tar; do
	ctr --address /run/containerd.sock --namespace k8s.io images import "$image" >>"$dir/logs/images.log" 2>&1
done

cat >"$dir/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
cgroupsPerQOS: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
clusterDNS: ["$node"]
clusterDomain: cluster.local
resolvConf: "$dir/resolv.conf"
containerRuntimeEndpoint: unix:///run/containerd.sock
evictionHard: {memory.available: "1Mi", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
imageGCHighThresholdPercent: 100
syncFrequency: 5s
END
start kubelet "$bin/kubelet" --config "$dir/kubelet.yaml" --kubeconfig "$KUBECONFIG" --hostname-override node --node-ip $node
start proxy "$bin/kube-proxy" --kubeconfig "$KUBECONFIG" --hostname-override node --proxy-mode iptables --conntrack-max-per-core 0 --conntrack-min 0 --cluster-cidr $pods
cat >"$dir/Corefile" <<END
.:53 {
	errors
	kubernetes cluster.local {
		kubeconfig $KUBECONFIG
	}
}
END
start dns "$bin/dns" -conf "$dir/Corefile"
await "the node" "$kubectl" wait --for condition=Ready node/node --timeout 1s
mount --bind "$dir/resolv.conf" "$(realpath /etc/resolv.conf)" # Services have names here too

touch "$dir/ready"
"$@"
