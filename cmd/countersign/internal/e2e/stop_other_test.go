//go:build !linux

package e2e

import "testing"

func (g *gate) stopped() { g.r.t.Skip("only Linux tells that a child was stopped") }

func (g *gate) fileSize(uint64) { g.r.t.Skip("only Linux bounds the files of another process") }

func fileSize(t testing.TB, _ int, _ uint64) {
	t.Skip("only Linux bounds the files of another process")
}
