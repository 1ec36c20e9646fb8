# Shared by deploy/release, deploy/package and deploy/try-packages, sourced after hwtests/lib.sh: which version this is, who answers
# for it, archives that come out the same each time, and what making and trying packages needs.

# What packages are looked at with.
LOOKING_PACKAGES=(lintian man-db)

# packing_packages ARCH: PACKING_PACKAGES is what makes packages of programs for it.
packing_packages() {
    local machine=x86-64
    [ "$1" = amd64 ] || machine=aarch64
    PACKING_PACKAGES=(debhelper dpkg-dev python3 rpm "binutils-$machine-linux-gnu")
}

# missing_from DIRECTORY PROGRAM...: those that are not there, with commas. PATH, as a word, is where commands are looked for.
missing_from() {
    local dir=$1 program text=''
    shift
    for program in "$@"; do
        if [ "$dir" = PATH ]; then command -v "$program" >/dev/null; else [ -x "$dir/$program" ]; fi || text+=", $program"
    done
    say "${text#, }"
}

# The version, of which Cargo.toml is the only source.
workspace_version() {
    sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml
}

# When the last commit was made; without git, when CHANGELOG.md was written.
source_date() {
    git log -1 --format=%ct 2>/dev/null || stat --format %Y CHANGELOG.md
}

# maintainer [TAG]: who answers for packages: DEBFULLNAME and DEBEMAIL, as for Debian's tools; else whoever made the tag, since a
# release is published by a person; without a tag nobody, and the name says so.
maintainer() {
    local tagger=''
    if [ -n "${DEBFULLNAME:-}" ] && [ -n "${DEBEMAIL:-}" ]; then
        say "$DEBFULLNAME <$DEBEMAIL>"
        return 0
    fi
    if [ $# = 0 ]; then
        say "Not a release of Drivebay <nobody@example.org>"
        return 0
    fi
    tagger=$(git for-each-ref --format '%(taggername) %(taggeremail)' "refs/tags/$1")
    [[ $tagger == *?' <'?*@?*'>' ]] || die "the tag $1 does not say who made it: git tag -a $1; or set DEBFULLNAME and DEBEMAIL"
    say "$tagger"
}

# archive DIRECTORY NAME FILE: a tarball of NAME in DIRECTORY, without what differs between two runs.
archive() {
    tar -C "$1" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -c "$2" | gzip -n -9 >"$3"
}
