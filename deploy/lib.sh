# Shared by deploy/render and deploy/check: tools of pinned versions, and what they make of the chart.
# Sourced by bash with `set -euo pipefail`, from the repository's root, after hwtests/lib.sh.

HELM_VERSION=v4.3.1
KUBECONFORM_VERSION=v0.8.0
# Kubernetes' JSON schemas, in a Python package.
SCHEMAS_VERSION=1.37.0
# Manifests are checked against the oldest Kubernetes that the chart installs on, and the newest there is.
KUBERNETES_VERSIONS=(1.30.0 1.37.0)

need_helm() {
    need_go_program helm helm.sh/helm/v4 "$HELM_VERSION" cmd/helm
    HELM="$(target_dir)/tools/helm"
}

need_kubeconform() {
    need_go_program kubeconform github.com/yannh/kubeconform "$KUBECONFORM_VERSION" cmd/kubeconform
    KUBECONFORM="$(target_dir)/tools/kubeconform"
}

# need_schemas: SCHEMAS is a directory with one directory of schemas per version of Kubernetes.
need_schemas() {
    local tools work version wanted="$SCHEMAS_VERSION ${KUBERNETES_VERSIONS[*]}"
    tools="$(target_dir)/tools"
    SCHEMAS="$tools/kubernetes-schemas"
    if [ "$(cat "$SCHEMAS.version" 2>/dev/null)" = "$wanted" ]; then
        say "Kubernetes schemas $wanted: there"
        return 0
    fi
    need_packages "Kubernetes' schemas" python3 python3-venv
    say "Kubernetes schemas: those of kubernetes-validate $SCHEMAS_VERSION"
    rm -rf "$SCHEMAS"
    mkdir -p "$SCHEMAS"
    work=$(mktemp -d "$tools/schemas.XXXXXX")
    python3 -m venv "$work/venv" || die "making a virtual environment in $work failed"
    "$work/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$work" \
        "kubernetes-validate==$SCHEMAS_VERSION" || die "downloading kubernetes-validate $SCHEMAS_VERSION failed"
    "$work/venv/bin/python" -m zipfile -e "$work"/kubernetes_validate-*.whl "$work/unpacked"
    for version in "${KUBERNETES_VERSIONS[@]}"; do
        mv "$work/unpacked/kubernetes_validate/kubernetes-json-schema/v$version-local-strict" "$SCHEMAS/v$version"
    done
    # They say that they are to be found on the network; here they lie beside one another.
    python3 - "$SCHEMAS" <<'END'
import json, pathlib, sys
for path in pathlib.Path(sys.argv[1]).glob("*/*.json"):
    schema = json.loads(path.read_text().replace('"/api/_definitions.json', '"_definitions.json'))
    schema.pop("$id", None)
    path.write_text(json.dumps(schema))
END
    rm -rf "$work"
    say "$wanted" >"$SCHEMAS.version"
}

# render VALUES: the manifests, as `helm install` would make them on an empty cluster, without what helm itself runs.
render() {
    printf '%s\n' \
        "# Rendered from deploy/chart with deploy/values/${1##*/} by deploy/render. Do not edit: change the chart, or the" \
        "# values, and render again. Put your image in place of registry.example.net/drivebay."
    # For the oldest, since nobody knows where it will be applied.
    "$HELM" template drivebay deploy/chart --namespace drivebay --no-hooks --kube-version "${KUBERNETES_VERSIONS[0]}" --values "$1"
}

# values_table: the chart's values as a table of Markdown: name, default, and the first sentence of the comment above it.
# It reads values.yaml as that is written: two spaces a level, lists and final maps on one line.
values_table() {
    printf '| value | default | |\n|---|---|---|\n'
    awk '
        /^ *#/ { sub(/^ *# ?/, ""); comment = comment (comment == "" ? "" : " ") $0; next }
        /^ *$/ { comment = ""; next }
        {
            match($0, /^ */)
            level = RLENGTH / 2
            line = substr($0, RLENGTH + 1)
            name = line; sub(/:.*/, "", name)
            value = substr(line, length(name) + 2); sub(/^ */, "", value)
            path[level] = name
            if (value == "") { comment = ""; next }
            full = ""
            for (i = 0; i <= level; i++) full = full (i ? "." : "") path[i]
            first = comment
            gsub(/e\.g\. /, "e.g.\001", first)
            if (match(first, /[.:;]( |$)/)) first = substr(first, 1, RSTART - 1)
            gsub(/\001/, " ", first)
            gsub(/\|/, "\\|", first)
            printf "| `%s` | `%s` | %s |\n", full, value, first
            comment = ""
        }' deploy/chart/values.yaml
}

# chart_readme: the chart's README with the table as it should be.
chart_readme() {
    awk -v table="$(values_table)" '
        /^\| value \| default / { print table; skip = 1 }
        skip && /^\|/ { next }
        { skip = 0; print }' deploy/chart/README.md
}
