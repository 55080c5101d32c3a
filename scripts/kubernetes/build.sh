#!/usr/bin/env bash
# Builds Kubernetes, KubeRay's operator and CoreDNS from the Go module proxy: a real cluster for the
# tests in tests/real/kubernetes, and for `make kubernetes`. Users do not need this.
#
# The result is in .cache/kubernetes, or in the folder that SUNSPOT_KUBERNETES_DIR names: programs in
# bin, what KubeRay publishes beside its operator in kuberay. A part is built again only when its
# recipe or Go changes, or when it is not there. Needs Go; the first build takes five minutes of two
# processors.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${SUNSPOT_KUBERNETES_DIR:-$root/.cache/kubernetes}
bin=$cache/bin
kuberay=$cache/kuberay

kubernetes=k8s.io/kubernetes
operator=github.com/ray-project/kuberay/ray-operator
programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl)

if ! command -v go > /dev/null; then
    echo "kubernetes: building it needs Go, which is not on the PATH" >&2
    exit 1
fi

# Everything that a part's result depends on.
inputs() {
    {
        go version && cat "$here/build.sh" && find "$here/$1" -type f -print0 | sort -z | xargs -0 cat
    } | sha256sum | cut -d ' ' -f 1
}
up_to_date() {
    local stamp=$cache/$1.stamp
    [[ -f $stamp && $(< "$stamp") == "$(inputs "$1")" ]] || return 1
    local made
    for made in $(results "$1"); do [[ -e $made ]] || return 1; done
}
# What a part makes, as far as it may be looked for.
results() {
    case $1 in
        kubernetes) printf '%s\n' "${programs[@]/#/$bin/}" "$bin/coredns" ;;
        operator) printf '%s\n' "$bin/ray-operator" "$kuberay/crds" "$kuberay/role.yaml" ;;
        pause) echo "$bin/pause" ;;
    esac
}
version() { (cd "$here/$1" && go list -m -f '{{.Version}}' "$2"); }

# What Kubernetes says of itself, which clients parse. The date only has to be one.
stamp_version() {
    local variable said=()
    for variable in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        said+=(-X "$variable.gitVersion=$1" -X "$variable.gitMajor=1"
            -X "$variable.gitMinor=$(cut -d . -f 2 <<< "$1")" -X "$variable.gitTreeState=archive"
            -X "$variable.buildDate=1970-01-01T00:00:00Z")
    done
    echo "${said[*]}"
}

build() {
    local part=$1 flags=$2
    shift 2
    # The linker drops debug information, so the compiler need not write it.
    (cd "$here/$part" && CGO_ENABLED=0 go build -o "$bin/" -gcflags=all=-dwarf=false \
        -ldflags "-s -w $flags" "$@")
}

build_kubernetes() {
    build kubernetes "$(stamp_version "$(version kubernetes $kubernetes)")" \
        "${programs[@]/#/$kubernetes/cmd/}" ./coredns
}
build_operator() {
    build operator "" $operator
    local config
    config=$(cd "$here/operator" && go list -m -f '{{.Dir}}' $operator)/config
    rm -rf "$kuberay"
    mkdir -p "$kuberay/crds"
    install -m 644 "$config"/crd/bases/*.yaml "$kuberay/crds"
    install -m 644 "$config/rbac/role.yaml" "$kuberay"
}
build_pause() { build pause "" .; }

mkdir -p "$bin"
# One at a time: .ci/run builds ahead of the tests, which begin with this too.
exec 9> "$cache/build.lock"
flock 9
for part in kubernetes operator pause; do
    if up_to_date "$part"; then continue; fi
    echo "kubernetes: building $part (the first build takes minutes)"
    rm -f "$cache/$part.stamp"
    "build_$part"
    inputs "$part" > "$cache/$part.stamp"
done
echo "kubernetes: ready in ${cache#"$root"/} ($(version kubernetes $kubernetes)," \
    "KubeRay $(version operator $operator))"
