#!/usr/bin/env bash
# Builds Docker's Compose plugin and the S3 server of the compose target from the Go module proxy,
# for the tests in tests/real/compose on machines that cannot download them. Users do not need this.
# Fetches what Grafana's source says of its settings and provisioning files: to build Grafana itself
# takes eight minutes of a processor and 3.3 GB.
#
# The result is in .cache/compose, or in the folder that SUNSPOT_COMPOSE_DIR names. It is built
# again only when this recipe or Go changes. Needs Go; the first build takes minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${SUNSPOT_COMPOSE_DIR:-$root/.cache/compose}
bin=$cache/bin
published=$cache/grafana
stamp=$cache/stamp

plugin=github.com/docker/compose/v2
s3=github.com/versity/versitygw
grafana=github.com/grafana/grafana

if ! command -v go > /dev/null; then
    echo "compose: building it needs Go, which is not on the PATH" >&2
    exit 1
fi

# Everything that the result depends on.
inputs=$({
    go version
    cat "$here/build.sh" "$here"/*/go.mod "$here"/*/go.sum
} | sha256sum | cut -d ' ' -f 1)
if [[ -f $stamp && $(< "$stamp") == "$inputs" && -x $bin/docker-compose && -x $bin/versitygw &&
    -d $published ]]; then
    echo "compose: up to date in ${bin#"$root"/}"
    exit 0
fi

rm -rf "$stamp" "$published"
mkdir -p "$bin" "$published"

version=$(cd "$here/plugin" && go list -m -f '{{.Version}}' "$plugin")
# Without C, as their makers build them; the standard library is then compiled once for all that the
# tests build.
export CGO_ENABLED=0
# The linker drops debug information, so the compiler need not write it.
no_debug=-gcflags=all=-dwarf=false

echo "compose: building docker-compose $version (the first build takes minutes)"
(cd "$here/plugin" && go build -o "$bin/docker-compose" "$no_debug" \
    -ldflags "-s -w -X $plugin/internal.Version=$version" "$plugin/cmd")

echo "compose: building versitygw"
(cd "$here/s3" && go build -o "$bin/versitygw" "$no_debug" \
    -ldflags "-s -w" "$s3/cmd/versitygw")

echo "compose: fetching Grafana's settings and examples of its provisioning"
(cd "$here/grafana" && go mod download "$grafana")
source=$(cd "$here/grafana" && go list -m -f '{{.Dir}}' "$grafana")
examples=pkg/services/provisioning
install -m 644 "$source/conf/defaults.ini" "$source/packaging/docker/run.sh" "$published"
install -m 644 "$source/$examples/datasources/testdata/all-properties/all-properties.yaml" \
    "$published/datasources.yml"
install -m 644 "$source/$examples/dashboards/testdata/test-configs/dashboards-from-disk/dev-dashboards.yaml" \
    "$published/dashboards.yml"

echo "$inputs" > "$stamp"
echo "compose: ready in ${bin#"$root"/} ($("$bin/docker-compose" version --short))"
