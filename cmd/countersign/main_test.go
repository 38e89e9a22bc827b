package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/countersign-mcp/countersign/server/upstream/upstreamtest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"countersign": func() {
			os.Exit(run(context.Background(), os.Args[1:], terminal{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
		},
		// An upstream whose directory is named by a variable, as package
		// upstreamtest says.
		"desk-mcp": func() {
			upstreamtest.Main()
			fmt.Fprintln(os.Stderr, "desk-mcp needs", upstreamtest.DirVar)
			os.Exit(1)
		},
	})
}

// The command line is specified by the scripts. Set UPDATE=1 to rewrite the
// outputs they compare with.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       os.Getenv("UPDATE") == "1",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_STATE_HOME", e.WorkDir+"/state")
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
	})
}
