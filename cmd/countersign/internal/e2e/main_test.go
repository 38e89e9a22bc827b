package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals/store/redistest"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

const module = "github.com/countersign-mcp/countersign"

var (
	binary string            // countersign, with fault points
	shared *redistest.Server // for the tests that don't hurt their Redis; each has a namespace of its own
)

func TestMain(m *testing.M) {
	testservers.Main() // a child that is an upstream never returns
	flag.Parse()
	// The race detector has each process wait a second before it ends, and these
	// tests end hundreds.
	if os.Getenv("GORACE") == "" {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=50")
	}
	// These tests wait for processes, leases and clocks more than they compute.
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0)))
	}
	os.Exit(withParts(m))
}

func withParts(m *testing.M) int {
	dir, err := os.MkdirTemp("", "countersign-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "countersign")
	args := []string{"build", "-tags", "faultpoints", "-o", binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, module+"/cmd/countersign")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building countersign: %v\n%s", err, out)
		return 1
	}
	shared, err = redistest.Launch()
	switch {
	case errors.Is(err, redistest.ErrMissing) && os.Getenv("CI") != "true":
		fmt.Fprintln(os.Stderr, "no redis-server on the PATH: the tests that need one are skipped")
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	default:
		defer shared.Close()
	}
	return m.Run()
}

// countersign runs the binary to its end.
func countersign(ctx context.Context, env []string, args ...string) (stdout, stderr string, code int) {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		code = -1
	}
	return out.String(), errs.String(), code
}
