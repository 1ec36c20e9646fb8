# Shared by deploy/release and deploy/package, sourced after hwtests/lib.sh: which version this is, and archives that come out the
# same each time.

# The version, of which Cargo.toml is the only source.
workspace_version() {
    sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml
}

# When the last commit was made; without git, when CHANGELOG.md was written.
source_date() {
    git log -1 --format=%ct 2>/dev/null || stat --format %Y CHANGELOG.md
}

# archive DIRECTORY NAME FILE: a tarball of NAME in DIRECTORY, without what differs between two runs.
archive() {
    tar -C "$1" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -c "$2" | gzip -n -9 >"$3"
}
