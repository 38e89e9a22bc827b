package link

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/notifier"
	"github.com/countersign-mcp/countersign/notifier/notifiertest"
)

type links struct {
	err    error
	id     string
	person string
	ttl    time.Duration
}

const secret = "s3cret-token"

func (l *links) NewLink(_ context.Context, id, person string, ttl time.Duration) (string, error) {
	l.id, l.person, l.ttl = id, person, ttl
	if l.err != nil {
		return "", l.err
	}
	return secret, nil
}

func message() notifier.Message {
	return notifier.Message{Channel: "link:ben", Ticket: approvals.Ticket{
		ID: "a", State: approvals.Pending, Rev: 3, Deadline: time.Now().Add(15 * time.Minute),
	}}
}

func TestHandsOutALink(t *testing.T) {
	l := &links{}
	var got []string
	c, err := New(Config{Links: l, PublicURL: "https://approvals.acme.test/", Sink: func(_ context.Context, person, url string, tk approvals.Ticket) error {
		got = append(got, person+" "+url+" "+tk.ID)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Deliver(t.Context(), message())
	if err != nil || r != (approvals.Ref{Channel: "link:ben", ID: "link:ben", Rev: 3}) {
		t.Fatalf("%+v, %v", r, err)
	}
	if len(got) != 1 || got[0] != "ben https://approvals.acme.test/a/"+secret+" a" {
		t.Errorf("got %q", got)
	}
	if l.id != "a" || l.person != "ben" || l.ttl < 74*time.Minute || l.ttl > 76*time.Minute {
		t.Errorf("%+v", l)
	}
	m := message()
	m.Ref, m.Ticket.Rev, m.Ticket.State = &r, 4, approvals.Denied
	if r, err = c.Deliver(t.Context(), m); err != nil || r.Rev != 4 || len(got) != 1 {
		t.Errorf("an edit: %+v, %v, %q", r, err, got)
	}
	if r, err = c.Deliver(t.Context(), notifier.Message{Channel: "link:ben", Find: true}); err != nil || r.ID != "" || len(got) != 1 {
		t.Errorf("a search: %+v, %v, %q", r, err, got)
	}
}

func TestLeaksNothing(t *testing.T) {
	l, sinks := &links{}, errors.New("could not open https://x/a/"+secret)
	var log bytes.Buffer
	c, err := New(Config{Links: l, PublicURL: "http://127.0.0.1:8090", Sink: func(context.Context, string, string, approvals.Ticket) error { return sinks }})
	if err != nil {
		t.Fatal(err)
	}
	notifiertest.LeaksNothing(t, notifiertest.Case{
		Channel: c, Message: message(), Secrets: []string{secret}, Log: &log,
		Break: map[string]func(){
			"sink":  func() {},
			"links": func() { l.err = errors.New("redis: " + secret) },
		},
	})
}

func TestNewRefuses(t *testing.T) {
	sink := func(context.Context, string, string, approvals.Ticket) error { return nil }
	for name, c := range map[string]Config{
		"no links":   {Sink: sink, PublicURL: "https://a.test"},
		"no sink":    {Links: &links{}, PublicURL: "https://a.test"},
		"no URL":     {Links: &links{}, Sink: sink},
		"plain http": {Links: &links{}, Sink: sink, PublicURL: "http://a.test"},
		"a query":    {Links: &links{}, Sink: sink, PublicURL: "https://a.test/?x=1"},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
