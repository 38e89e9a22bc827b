// Package link is the channel "link:PERSON": a personal link to the page of one
// approval, handed to whoever passes it on (a terminal, a mail). The link is a
// secret: it is in no log, no error and no reference.
package link

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/notifier"
)

// Links issues tokens for the page. A token names one approval and one person.
type Links interface {
	NewLink(ctx context.Context, id, person string, ttl time.Duration) (token string, err error)
}

// Sink takes a link to its person. It must not keep it where others read.
type Sink func(ctx context.Context, person, url string, t approvals.Ticket) error

// Config of the channel. All but After and Now are needed.
type Config struct {
	Links     Links
	PublicURL string // where the webhook listener is reached; https unless loopback
	Sink      Sink
	// After is how long a link is good beyond the deadline: somebody late is
	// told what became of it. Default one hour.
	After time.Duration
	Now   func() time.Time
}

// Channel is the channel. It is safe for concurrent use when its Sink is.
type Channel struct {
	cfg  Config
	base string
}

// New checks the configuration.
func New(cfg Config) (*Channel, error) {
	if cfg.Links == nil || cfg.Sink == nil {
		return nil, errors.New("link: no links or no sink")
	}
	u, err := url.Parse(cfg.PublicURL)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("link: public_url is not a plain http(s) URL")
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return nil, errors.New("link: public_url must be https unless its host is loopback")
	}
	if cfg.After <= 0 {
		cfg.After = time.Hour
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Channel{cfg: cfg, base: strings.TrimRight(cfg.PublicURL, "/")}, nil
}

var _ notifier.Channel = (*Channel)(nil)

// Deliver hands out a link. A page shows the record as it is, so an edit is
// nothing to do; a link handed out twice does no harm.
func (c *Channel) Deliver(ctx context.Context, m notifier.Message) (approvals.Ref, error) {
	if m.Ref != nil {
		out := *m.Ref
		out.Rev = m.Ticket.Rev
		return out, nil
	}
	if m.Find {
		return approvals.Ref{}, nil
	}
	person, ok := strings.CutPrefix(m.Channel, "link:")
	if !ok || person == "" {
		return approvals.Ref{}, &notifier.Fail{Reason: notifier.NoChannel, Final: true}
	}
	ttl := max(m.Ticket.Deadline.Sub(c.cfg.Now()), 0) + c.cfg.After
	token, err := c.cfg.Links.NewLink(ctx, m.Ticket.ID, person, ttl)
	if err != nil {
		return approvals.Ref{}, &notifier.Fail{Reason: notifier.Unreachable, Detail: "no link could be issued"}
	}
	if err := c.cfg.Sink(ctx, person, c.base+"/a/"+url.PathEscape(token), m.Ticket); err != nil {
		return approvals.Ref{}, &notifier.Fail{Reason: notifier.Unreachable, Maybe: true, Detail: "the link could not be handed over"}
	}
	return approvals.Ref{Channel: m.Channel, ID: m.Channel, Rev: m.Ticket.Rev}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
