//go:build tools

// Package tools imports what build.sh builds, so that `go mod tidy` keeps it in go.mod.
package tools

import _ "github.com/coredns/coredns"
