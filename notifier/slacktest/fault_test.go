package slacktest_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

func say(t *testing.T, api *slack.Client) (string, error) {
	t.Helper()
	_, ts, err := api.PostMessageContext(t.Context(), channel, slack.MsgOptionText("hello", false))
	return ts, err
}

func TestFaults(t *testing.T) {
	status := func(code int) func(error) bool {
		return func(err error) bool {
			var e slack.StatusCodeError
			return errors.As(err, &e) && e.Code == code
		}
	}
	slackError := func(code string) func(error) bool {
		return func(err error) bool {
			var e slack.SlackErrorResponse
			return errors.As(err, &e) && e.Err == code
		}
	}
	lost := func(err error) bool {
		return err != nil && !status(500)(err) && strings.Contains(err.Error(), "EOF")
	}
	cases := []struct {
		name   string
		fault  slacktest.Fault
		want   func(error) bool
		stored int
	}{
		{"drop after commit", slacktest.DropAfterCommit(), lost, 1},
		{"drop before", slacktest.DropBefore(), lost, 0},
		{"500 after commit", slacktest.ErrorAfterCommit(), status(500), 1},
		{"500 before", slacktest.ErrorBefore(), status(500), 0},
		{"429", slacktest.TooMany(7), func(err error) bool {
			var e *slack.RateLimitedError
			return errors.As(err, &e) && e.RetryAfter == 7*time.Second
		}, 0},
		{"429 without Retry-After", slacktest.TooMany(-1), status(http.StatusTooManyRequests), 0},
		{"code", slacktest.Code("internal_error"), slackError("internal_error"), 0},
		{"code after commit", slacktest.Fault{Commit: true, Code: "request_timeout"}, slackError("request_timeout"), 1},
		{"empty", slacktest.Fault{Empty: true}, func(err error) bool { return err == nil }, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, api := scene(t)
			s.FailNext("chat.postMessage", c.fault)
			ts, err := say(t, api)
			if !c.want(err) || ts != "" {
				t.Errorf("error %v (%T), ts %q", err, err, ts)
			}
			if n := len(s.Messages(channel)); n != c.stored {
				t.Errorf("%d messages stored, want %d", n, c.stored)
			}
			if _, err := say(t, api); err != nil {
				t.Errorf("the fault stayed: %v", err)
			}
			if n := s.Calls("chat.postMessage"); n != 2 {
				t.Errorf("%d calls counted, want 2", n)
			}
		})
	}
}

func TestFailAlwaysUntilHealed(t *testing.T) {
	s, api := scene(t)
	s.FailAlways("*", slacktest.TooMany(1))
	s.FailNext("chat.postMessage", slacktest.Code("fatal_error"))
	_, err := say(t, api)
	wantCode(t, err, "fatal_error")
	for range 3 {
		if _, err := say(t, api); err == nil {
			t.Fatal("a call got through")
		}
	}
	s.Heal("*")
	if _, err := say(t, api); err != nil {
		t.Error(err)
	}
}

func TestDownAndUp(t *testing.T) {
	s, api := scene(t)
	if _, err := say(t, api); err != nil {
		t.Fatal(err)
	}
	s.Down()
	if _, err := say(t, api); err == nil {
		t.Fatal("a call got through while Slack was down")
	}
	s.Up()
	if _, err := say(t, api); err != nil {
		t.Fatal(err)
	}
	if n := len(s.Messages(channel)); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
}

func TestSlow(t *testing.T) {
	for _, commits := range []bool{false, true} {
		s, api := scene(t)
		release := make(chan struct{})
		f := slacktest.Slow(release)
		if commits {
			f = slacktest.SlowAnswer(release)
		}
		s.FailNext("chat.postMessage", f)
		done := make(chan error, 1)
		go func() {
			_, err := say(t, api)
			done <- err
		}()
		if commits {
			if _, err := s.WaitMessage(t.Context(), channel, nil); err != nil {
				t.Fatal(err)
			}
		} else if err := s.WaitCalls(t.Context(), "chat.postMessage", 1); err != nil {
			t.Fatal(err)
		}
		if n := len(s.Messages(channel)); (n == 1) != commits {
			t.Errorf("commits %v: %d messages while it is held", commits, n)
		}
		select {
		case err := <-done:
			t.Errorf("answered before the release: %v", err)
		default:
		}
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := len(s.Messages(channel)); n != 1 {
			t.Errorf("%d messages at the end", n)
		}
	}
}

// A caller that gives up on a call that wasn't carried out leaves nothing.
func TestSlowGivenUp(t *testing.T) {
	s, api := scene(t)
	s.FailNext("chat.postMessage", slacktest.Slow(make(chan struct{})))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := api.PostMessageContext(ctx, channel, slack.MsgOptionText("x", false))
		done <- err
	}()
	if err := s.WaitCalls(t.Context(), "chat.postMessage", 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := len(s.Messages(channel)); n != 0 {
		t.Errorf("%d messages", n)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	s, _ := scene(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.WaitMessage(ctx, channel, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
