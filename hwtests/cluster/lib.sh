# Starting and ending a cluster: sourced by hwtests/kubernetes, from the repository's root, after hwtests/lib.sh.

CLUSTER_NEWEST=v1.37.2
STATE_METRICS_VERSION=v2.18.0
CNPG_VERSION=v1.30.0
CLUSTER_PACKAGES=(containerd runc containernetworking-plugins conntrack iptables iproute2 openssl jq busybox-static
    procps util-linux mmdebstrap ca-certificates)

# need_state_metrics: builds kube-state-metrics, once: STATE_METRICS.
need_state_metrics() {
    need_go_program kube-state-metrics k8s.io/kube-state-metrics/v2 "$STATE_METRICS_VERSION"
    STATE_METRICS="$(realpath -m "$(target_dir)")/tools/kube-state-metrics"
}

# need_cnpg: CNPG_CRDS is the directory of CloudNativePG's CRDs.
need_cnpg() {
    local go
    go=$(go_program) || exit 1
    CNPG_CRDS=$(cd / && "$go" mod download -json "github.com/cloudnative-pg/cloudnative-pg@$CNPG_VERSION" |
        sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')/config/crd/bases
    [ -d "$CNPG_CRDS" ] || die "downloading CloudNativePG $CNPG_VERSION failed"
}

# cluster_auth DIRECTORY: a certificate authority, a certificate for each program, and what they dial with.
cluster_auth() {
    local auth=$1/auth
    mkdir -p "$auth"
    (
        cd "$auth"
        openssl genrsa -out accounts.key 2048
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=cluster \
            -keyout ca.key -out ca.crt
        sign apiserver /CN=kube-apiserver serverAuth \
            IP:127.0.0.1,IP:10.90.0.1,IP:10.96.0.1,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,DNS:localhost
        sign admin /O=system:masters/CN=admin
        sign kube-controller-manager /CN=system:kube-controller-manager
        sign kube-scheduler /CN=system:kube-scheduler
        sign kube-proxy /CN=system:kube-proxy
        sign coredns /O=system:masters/CN=coredns
        sign kubelet /O=system:nodes/CN=system:node:node-1
    ) >/dev/null 2>"$1/log/openssl.log" || die "making the cluster's certificates failed: $(tail -n 3 "$1/log/openssl.log")"
}

# sign NAME SUBJECT [USAGE] [NAMES]: NAME.crt and NAME.key, and NAME.kubeconfig with them; in the directory of the CA.
sign() {
    local usage=${3:-clientAuth} names=${4:-}
    {
        printf 'keyUsage=digitalSignature\nextendedKeyUsage=%s\n' "$usage"
        [ -z "$names" ] || printf 'subjectAltName=%s\n' "$names"
    } >"$1.ext"
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$2" -keyout "$1.key" -out "$1.csr"
    openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile "$1.ext" -out "$1.crt"
    cat >"$1.kubeconfig" <<END
apiVersion: v1
kind: Config
clusters:
  - name: cluster
    cluster: {server: "https://10.90.0.1:6443", certificate-authority: $PWD/ca.crt}
users:
  - name: $1
    user: {client-certificate: $PWD/$1.crt, client-key: $PWD/$1.key}
contexts:
  - name: cluster
    context: {cluster: cluster, user: $1}
current-context: cluster
END
}

# containerd_config DIRECTORY: with CNI's configuration in that directory.
containerd_config() {
    # restrict_oom_score_adj: root lacks CAP_SYS_RESOURCE in some containers.
    cat <<END
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "drivebay.test/sandbox:1"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "$1"
END
}

# cni_config SUBNET: the pods of a node have addresses of it.
cni_config() {
    cat <<END
{"cniVersion": "0.4.0", "name": "bridge", "plugins": [{
  "type": "bridge", "bridge": "pods0", "isDefaultGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "$1"}]]}}]}
END
}

# kubelet_config CA LINE...: with these lines besides. NeverVerify: an image that was imported is pulled no more after the
# kubelet has pulled the same one by another name.
kubelet_config() {
    cat <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, x509: {clientCAFile: $1}}
authorization: {mode: AlwaysAllow}
failCgroupV1: false
clusterDNS: [10.90.0.1]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
imageMinimumGCAge: 24h
imageGCHighThresholdPercent: 100
imagePullCredentialsVerificationPolicy: NeverVerify
evictionHard: {memory.available: 50Mi}
failSwapOn: false
featureGates: {CSIVolumeHealth: true}
localStorageCapacityIsolation: false
oomScoreAdj: 0
resolvConf: ""
rotateCertificates: false
syncFrequency: 10s
END
    shift
    printf '%s\n' "$@"
}

# cluster_files DIRECTORY CGROUP: the configuration of the programs that have files.
cluster_files() {
    local etc=$1/etc
    mkdir -p "$etc/cni"
    printf '127.0.0.1 localhost\n10.90.0.1 node-1\n10.90.0.2 node-2\n' >"$etc/hosts"
    printf '%s\n' 5d7a2c9e4b1f4c0d8e6a3f2b1c0d9e8f >"$etc/machine-id"
    cat >"$etc/Corefile" <<END
cluster.local:53 {
    errors
    kubernetes cluster.local {
        kubeconfig $1/auth/coredns.kubeconfig
        ttl 2
    }
}
END
    containerd_config "$etc/cni" >"$etc/containerd.toml"
    cni_config 10.88.0.0/16 >"$etc/cni/10-bridge.conflist"
    # Conditions of volumes reach pods within volumeStatsAggPeriod.
    kubelet_config "$1/auth/ca.crt" "cgroupDriver: cgroupfs" "cgroupRoot: $2" "volumeStatsAggPeriod: 5s" \
        >"$etc/kubelet.yaml"
    cat >"$etc/registry.yaml" <<END
version: 0.1
storage: {filesystem: {rootdirectory: $1/registry}}
http: {addr: "127.0.0.1:5000"}
END
    cat >"$etc/kube-proxy.yaml" <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clientConnection: {kubeconfig: $1/auth/kube-proxy.kubeconfig}
hostnameOverride: node-1
conntrack: {maxPerCore: 0}
bindAddress: 10.90.0.1
END
}

# What a kubelet changes of the whole machine, to be put back.
CLUSTER_SYSCTLS=(vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys
    kernel.keys.root_maxbytes)

# cluster_up DIRECTORY BIN SIDECARS: makes the namespaces of a cluster whose programs are in BIN, and in SIDECARS what
# every version has in common. Nothing is started in them yet.
cluster_up() {
    local dir=$1 name
    mkdir -p "$dir"/{log,run,bin,drives}
    for name in "$3"/{coredns,csi-provisioner} "$2"/*; do ln -sf "$name" "$dir/bin/"; done
    cluster_auth "$dir"
    local group=drivebay-${dir##*/}
    cluster_files "$dir" "/$group"
    say "$group" >"$dir/cgroup"
    for name in /sys/fs/cgroup/*/; do mkdir -p "$name/$group" 2>/dev/null || true; done
    # A new group has no processor and no memory of its own until it is told which.
    for name in cpus mems; do
        [ ! -e /sys/fs/cgroup/cpuset ] ||
            cat "/sys/fs/cgroup/cpuset/cpuset.$name" >"/sys/fs/cgroup/cpuset/$group/cpuset.$name"
    done
    for name in "${CLUSTER_SYSCTLS[@]}"; do sysctl -e "$name"; done >"$dir/sysctls"
    CLUSTER=$dir setsid unshare --fork --kill-child --pid --mount --net --uts --ipc --propagation slave --mount-proc \
        hwtests/cluster/node >"$dir/log/node.log" 2>&1 </dev/null &
    local unshare=$! limit=$((SECONDS + 20))
    # So that its end, which is a kill, is no news of the shell's.
    disown "$unshare"
    say "$unshare" >"$dir/run/unshare.pid"
    until [ -e "$dir/run/ready" ]; do
        kill -0 "$unshare" 2>/dev/null && [ $SECONDS -lt $limit ] ||
            die "making the cluster's namespaces failed: $(tail -n 3 "$dir/log/node.log")"
        sleep 0.1
    done
    pgrep --parent "$unshare" | head -n 1 >"$dir/run/init.pid"
    # inside COMMAND...: in the cluster's namespaces.
    cat >"$dir/inside" <<END
#!/bin/sh
exec nsenter --target $(cat "$dir/run/init.pid") --mount --pid --net --ipc --uts -- env CLUSTER='$dir' CLUSTER_GATES='${CLUSTER_GATES:-}' PATH='$dir/bin:/usr/sbin:/usr/bin:/sbin:/bin' KUBECONFIG='$dir/auth/admin.kubeconfig' HOME='$dir' "\$@"
END
    printf '#!/bin/sh\nexec %q kubectl "$@"\n' "$dir/inside" >"$dir/kubectl"
    printf '#!/bin/sh\nexec %q %q "$@"\n' "$dir/inside" "$PWD/hwtests/cluster/services" >"$dir/services"
    chmod +x "$dir/inside" "$dir/kubectl" "$dir/services"
}

# cluster_wait DIRECTORY SECONDS WHAT COMMAND...: until it succeeds in the cluster's namespaces.
cluster_wait() {
    local dir=$1 limit=$((SECONDS + $2)) what=$3
    shift 3
    until "$dir/inside" "$@" >/dev/null 2>"$dir/log/wait.log"; do
        [ $SECONDS -lt $limit ] || die "$what: not within its time: $(tail -n 3 "$dir/log/wait.log"); logs: $dir/log"
        sleep 0.5
    done
}

# cluster_snapshots DIRECTORY CRDS: gives a cluster whose API server answers what it has for snapshots of all drivers: their API,
# from a directory of CRDs, and the snapshot-controller.
cluster_snapshots() {
    "$1/kubectl" apply --filename "$2" >/dev/null
    cluster_wait "$1" 30 "the API of snapshots" kubectl wait --for=condition=Established --timeout=5s --filename "$2"
    "$1/services" start snapshot-controller
}

# cluster_evidence DIRECTORY TARGET: keeps what helps to understand a failure.
cluster_evidence() {
    local dir=$1
    mkdir -p "$2"
    cp -r "$dir/log" "$2/"
    "$dir/kubectl" get events -A --sort-by=.lastTimestamp >"$2/events.txt" 2>&1 || true
    "$dir/kubectl" describe pods,pvc,pv,nodes,csinodes -A >"$2/describe.txt" 2>&1 || true
    # There are none without their API.
    "$dir/kubectl" get volumesnapshots,volumesnapshotcontents,volumegroupsnapshots,volumegroupsnapshotcontents -A --output yaml \
        >"$2/snapshots.yaml" 2>&1 || true
    cp -rL "$dir/pod-logs" "$2/" 2>/dev/null || true
}

# cluster_down DIRECTORY: ends everything, also after a start that failed halfway.
cluster_down() {
    local dir=$1 pid group
    [ -d "$dir" ] || return 0
    pid=$(cat "$dir/run/unshare.pid" 2>/dev/null || true)
    # The number may be another process's since the machine was booted.
    if [ -n "$pid" ] && tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q hwtests/cluster/node; then
        kill -KILL "$pid"
        while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    fi
    detach_drives "$dir/*"
    group=$(cat "$dir/cgroup" 2>/dev/null || true)
    if [ -n "$group" ]; then
        find /sys/fs/cgroup -depth -type d \( -path "*/$group" -o -path "*/$group/*" \) -exec rmdir {} + 2>/dev/null || true
    fi
    sysctl -q -p "$dir/sysctls" >/dev/null 2>&1 || true
    rm -rf --one-file-system "$dir"
}
