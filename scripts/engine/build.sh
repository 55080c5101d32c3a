#!/usr/bin/env bash
# Builds Pulumi's engine and its Python host from the Go module proxy, for the tests on machines
# that cannot download Pulumi's own installer. Users do not need this: see the README.
#
# The result is in .cache/engine/bin, or below the folder that SUNSPOT_ENGINE_DIR names. It is built
# again only when this recipe or Go changes. Needs Go; the first build takes minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${SUNSPOT_ENGINE_DIR:-$root/.cache/engine}
bin=$cache/bin
stamp=$cache/stamp

sdk=github.com/pulumi/pulumi/sdk/v3
pkg=github.com/pulumi/pulumi/pkg/v3

if ! command -v go > /dev/null; then
    echo "engine: building it needs Go, which is not on the PATH" >&2
    exit 1
fi

# Everything that the result depends on.
inputs=$({
    go version
    cat "$here/build.sh" "$here"/*/go.mod "$here"/*/go.sum
} | sha256sum | cut -d ' ' -f 1)
if [[ -f $stamp && $(< "$stamp") == "$inputs" && -x $bin/pulumi ]]; then
    echo "engine: up to date in ${bin#"$root"/}"
    exit 0
fi

rm -f "$stamp"
mkdir -p "$bin"

version=$(cd "$here/cli" && go list -m -f '{{.Version}}' "$pkg")
# Without C, as their makers build them; the standard library is then compiled once for all that the
# tests build.
export CGO_ENABLED=0
# The linker drops debug information, so the compiler need not write it.
no_debug=-gcflags=all=-dwarf=false

echo "engine: building pulumi $version (the first build takes minutes)"
(cd "$here/cli" && go build -o "$bin/pulumi" "$no_debug" \
    -ldflags "-s -w -X $sdk/go/common/version.Version=$version" "$pkg/cmd/pulumi")

echo "engine: building pulumi-language-python"
(cd "$here/python_host" && go build -o "$bin/pulumi-language-python" "$no_debug" \
    -ldflags "-s -w" "$sdk/python/cmd/pulumi-language-python")

echo "engine: copying pulumi-language-python-exec"
module=$(cd "$here/cli" && go list -m -f '{{.Dir}}' "$sdk")
install -m 755 "$module/python/cmd/pulumi-language-python-exec" "$bin/"

echo "$inputs" > "$stamp"
echo "engine: ready in ${bin#"$root"/} ($("$bin/pulumi" version))"
