// Package notifiertest holds what every channel must pass. It is for tests only.
package notifiertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/notifier"
)

// Case is one channel and the ways in which its service can fail.
type Case struct {
	Channel notifier.Channel
	Message notifier.Message
	// Secrets are what no error and no log line may hold: tokens, URLs with
	// tokens, arguments.
	Secrets []string
	Log     *bytes.Buffer // what the channel logged; may be nil
	// Break makes the next delivery fail.
	Break map[string]func()
}

// LeaksNothing checks that each failure is a *notifier.Fail with a known reason,
// and that neither its text in any form nor the log holds a secret. Beside the
// given failures it tries a context that is over.
func LeaksNothing(t *testing.T, c Case) {
	t.Helper()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	check(t, c, "cancelled", over)
	for name, breaks := range c.Break {
		breaks()
		check(t, c, name, t.Context())
	}
}

func check(t *testing.T, c Case, name string, ctx context.Context) {
	t.Helper()
	_, err := c.Channel.Deliver(ctx, c.Message)
	if err == nil {
		t.Errorf("%s: no error", name)
		return
	}
	var f *notifier.Fail
	if !errors.As(err, &f) {
		t.Errorf("%s: %T is not a *notifier.Fail", name, err)
		return
	}
	if !slices.Contains(notifier.Reasons(), f.Reason) {
		t.Errorf("%s: the reason %q is not of the closed set", name, f.Reason)
	}
	said := fmt.Sprintf("%v\n%+v\n%#v", err, err, f)
	if c.Log != nil {
		said += c.Log.String()
	}
	for _, s := range c.Secrets {
		if s != "" && strings.Contains(said, s) {
			t.Errorf("%s: %q is in the error or the log:\n%s", name, s, said)
		}
	}
}
