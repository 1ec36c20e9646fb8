# Shared by the scripts of a release, sourced after hwtests/lib.sh: building for another processor on Debian 12, and running that.

# What Debian 12 has: a program that asks for a newer one does not start there.
GLIBC_AT_MOST=2.36

target_of() {
    case $1 in
    amd64) say x86_64-unknown-linux-gnu ;;
    arm64) say aarch64-unknown-linux-gnu ;;
    *) die "nothing is built for $1: amd64 or arm64" ;;
    esac
}

# need_cross ARCH: what building for another processor takes, and running what was built. `cross` is the environment of cargo,
# `emulator` what a program is run by.
need_cross() {
    local target gnu rust=()
    target=$(target_of "$1")
    gnu=${target/-unknown/}
    emulator="qemu-${target%%-*}-static"
    dpkg --print-foreign-architectures | grep -qx "$1" || { need_root && dpkg --add-architecture "$1" && apt-get update -q >/dev/null; }
    need_packages "building for $1, and trying it" "gcc-${gnu/_/-}" "libc6-dev:$1" "libudev-dev:$1" "libblkid-dev:$1" \
        "libgcc-s1:$1" qemu-user-static binfmt-support
    if [ ! -d "$(rustc --print target-libdir --target "$target")" ]; then
        say "rustup has no $target (rustup target add $target): taking Debian's Rust for $1"
        debian_rust "$1"
        rust=("RUSTC=$(target_dir)/tools/debian-rust-$1/rustc")
    fi
    cross=("${rust[@]}" "CARGO_TARGET_$(tr a-z- A-Z_ <<<"$target")_LINKER=$gnu-gcc"
        "CARGO_TARGET_$(tr a-z- A-Z_ <<<"$target")_RUNNER=$emulator" PKG_CONFIG_ALLOW_CROSS=1
        "PKG_CONFIG_LIBDIR=/usr/lib/$gnu/pkgconfig:/usr/share/pkgconfig"
        "BINDGEN_EXTRA_CLANG_ARGS=--target=$gnu -I/usr/include/$gnu")
}

# debian_rust ARCH: makes target/tools/debian-rust-ARCH/rustc, which can build for ARCH: Debian testing's compiler and standard
# library, unpacked and not installed. The compiler runs with its own C library; what it builds is linked with this
# machine's, and so runs where other programs of this machine run.
debian_rust() {
    local arch=$1 here dir apt package libraries found needed
    here=$(dpkg --print-architecture)
    dir=$(realpath -m "$(target_dir)/tools/debian-rust-$arch")
    if [ ! -x "$dir/rustc" ]; then
        rm -rf "$dir" "$dir.new"
        apt="$dir.new/apt"
        mkdir -p "$dir.new/root" "$apt/lists/partial" "$apt/cache/archives/partial"
        # What they are to be linked with is this machine's, and not fetched.
        for package in gcc binutils libc-dev; do
            printf 'Package: %s\nStatus: install ok installed\nVersion: 99:0\nArchitecture: %s\nMaintainer: nobody\nDescription: here\n\n' \
                "$package" "$here"
        done >"$apt/status"
        say "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(debian_mirror) testing main" >"$apt/sources.list"
        cat >"$apt/apt.conf" <<END
APT::Architectures { "$here"; "$arch"; };
APT::Sandbox::User "root";
Dir::State "$apt";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "-";
END
        (
            export APT_CONFIG="$apt/apt.conf"
            apt-get update && apt-get install -y --no-install-recommends --download-only rustc "libstd-rust-dev:$arch"
        ) >"$dir.log" 2>&1 || { tail -n 20 "$dir.log" >&2 && die "getting Debian testing's Rust for $arch failed; rustup target add $(target_of "$arch") does as well"; }
        # Of the other processor only the standard library: nothing of it runs here.
        for package in "$apt/cache/archives"/*_{"$here",all}.deb "$apt/cache/archives"/libstd-rust-*_"$arch".deb; do
            [ ! -f "$package" ] || dpkg-deb -x "$package" "$dir.new/root"
        done
        libraries=$(cd "$dir.new/root" && printf '%s\n' usr/lib/*/libc.so.6)
        libraries="$dir/root/${libraries%/*}"
        cat >"$dir.new/rustc" <<END
#!/bin/sh
exec "$libraries"/ld-linux-*.so.* --library-path "$libraries" "$dir/root/usr/bin/rustc" --sysroot "$dir/root/usr" "\$@"
END
        chmod +x "$dir.new/rustc"
        rm -rf "$apt" "$dir.log"
        mv "$dir.new" "$dir"
    fi
    needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    found=$("$dir/rustc" --version | sed -n 's/^rustc \([0-9.]*\).*/\1/p')
    [ "$(printf '%s\n' "$needed" "$found" | sort -V | head -n 1)" = "$needed" ] ||
        die "Debian testing's Rust is ${found:-of no known version}, and $needed or newer is needed: rustup target add $(target_of "$arch")"
    say "Rust $found for $arch: $dir"
}

# need_emulation ARCH: has the kernel run programs of another processor, as roots of it need when packages are configured.
need_emulation() {
    local name
    name=$(target_of "$1")
    name="qemu-${name%%-*}"
    need_packages "roots for $1" qemu-user-static binfmt-support arch-test
    [ -e /proc/sys/fs/binfmt_misc/register ] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc ||
        die "this kernel cannot hand programs for $1 to qemu: it has no binfmt_misc"
    [ -e "/proc/sys/fs/binfmt_misc/$name" ] || update-binfmts --enable "$name" || die "update-binfmts --enable $name failed"
}

# check_glibc READELF PROGRAM: that it starts on Debian 12.
check_glibc() {
    local needed
    needed=$("$1" --version-info --wide "$2" | grep -o 'GLIBC_[0-9.]*' | sed s/GLIBC_// | sort -V | tail -n 1)
    [ -n "$needed" ] || die "$2 does not say which glibc it needs"
    dpkg --compare-versions "$needed" le "$GLIBC_AT_MOST" ||
        die "$2 needs glibc $needed, and Debian 12 has $GLIBC_AT_MOST: build it on Debian 12"
    say "${2##*/} needs glibc $needed"
}
