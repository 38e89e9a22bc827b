package notifier

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		first := newAttempt("", began)
		time.Sleep(time.Minute)
		second := newAttempt(first, time.Now())
		m := Message{Attempt: second}
		if !m.Since().Equal(began) || !m.Latest().Equal(time.Now()) {
			t.Errorf("%s: since %v, latest %v", second, m.Since(), m.Latest())
		}
		if newAttempt("", began) == first {
			t.Error("two attempts are the same")
		}
		for _, odd := range []string{"", "x", "17.", "-1-.", "9999999999999999999999-1.a"} {
			m := Message{Attempt: odd}
			_, _ = m.Since(), m.Latest() // must not panic
		}
		if !(Message{}).Since().IsZero() {
			t.Error("no attempt has a time")
		}
	})
}

func TestScheduleBounds(t *testing.T) {
	s := Schedule{}
	s.fill()
	pending := approvals.Ticket{State: approvals.Pending}
	denied := approvals.Ticket{State: approvals.Denied}
	for tries := 1; tries < 200; tries++ {
		if w := s.wait(pending, tries, 0); w <= 0 || w > 30*time.Second {
			t.Fatalf("try %d of a pending card waits %s", tries, w)
		}
		if w := s.wait(denied, tries, 0); w <= 0 || w > 15*time.Minute {
			t.Fatalf("try %d of a settled card waits %s", tries, w)
		}
	}
	if w := s.wait(pending, 1, time.Minute); w < time.Minute || w > time.Minute+time.Second {
		t.Errorf("Retry-After of a minute waits %s", w)
	}
	if w := s.wait(pending, 1, 1000*time.Hour); w > time.Hour+time.Second {
		t.Errorf("an absurd Retry-After is believed: %s", w)
	}
	if w := s.wait(pending, 1, -time.Hour); w <= 0 {
		t.Errorf("a negative Retry-After waits %s", w)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("no book, no error")
	}
	c := Config{Book: struct{ Book }{}, Find: Channels{}.Find, Lease: 10 * time.Second, Call: 6 * time.Second}
	if _, err := New(c); err == nil || !strings.Contains(err.Error(), "lease") {
		t.Errorf("a delivery longer than half a lease: %v", err)
	}
}

func TestFind(t *testing.T) {
	jira := struct{ Channel }{}
	c := Channels{"ticket:jira": jira}
	if c.Find("ticket:jira") == nil || c.Find("ticket:other") != nil || c.Find("slack:C1") != nil {
		t.Error("a channel was found by a wrong name")
	}
	c["ticket"] = jira
	if c.Find("ticket:other") == nil {
		t.Error("a kind serves all its names")
	}
}
