package demo

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/webhook"
)

// decide is the body that says a person's answer to what a link is about.
func decide(l Link, verdict, person, reason string) []byte {
	v, ok := approvals.ParseVerdict(verdict)
	if !ok {
		panic("demo: no verdict: " + verdict)
	}
	d := webhook.Decision{ApprovalID: l.Approval, Verdict: v, Digest: l.Digest, Actor: person, Reason: reason}
	return d.Body(time.Now())
}

// sign makes the headers of a signed callback.
func sign(secret, id string, at time.Time, body []byte) (http.Header, error) {
	h, err := webhook.SignStandard(secret, id, at, body)
	if err != nil {
		return nil, fmt.Errorf("signing a callback: %w", err)
	}
	h.Set("Content-Type", "application/json")
	return h, nil
}

// reply is what a plain HTTP request got.
type reply struct {
	status int
	body   string
}

// post sends one request as it is given; nothing is retried or followed.
func post(ctx context.Context, url string, h http.Header, body []byte) (reply, error) {
	return request(ctx, http.MethodPost, url, h, body)
}

const requestTime = 10 * time.Second

var plain = &http.Client{
	Timeout:       requestTime,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func request(ctx context.Context, method, url string, h http.Header, body []byte) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header = h.Clone()
	res, err := plain.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return reply{}, err
	}
	return reply{res.StatusCode, string(b)}, nil
}

// click sends a person's answer as a ticket system would: signed, and bound to
// the call by the digest.
func (p Parts) click(ctx context.Context, l Link, verdict, person, reason string) (reply, error) {
	body := decide(l, verdict, person, reason)
	h, err := sign(p.CallbackSecret, "msg_"+random(base64.RawURLEncoding.EncodeToString), time.Now(), body)
	if err != nil {
		return reply{}, err
	}
	return post(ctx, p.callbackURL(), h, body)
}
