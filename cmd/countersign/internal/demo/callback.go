package demo

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// decision is the body of a callback.
type decision struct {
	Type      string       `json:"type"`
	Timestamp string       `json:"timestamp"`
	Data      decisionData `json:"data"`
}

type decisionData struct {
	ApprovalID string `json:"approval_id"`
	Decision   string `json:"decision"` // "approve" or "deny"
	Digest     string `json:"digest"`   // as our message carried it
	Actor      struct {
		ID string `json:"id"` // the person's name at the sender
	} `json:"actor"`
	Reason string `json:"reason,omitempty"`
}

// decide is the body that says a person's answer to what a link is about.
func decide(l Link, verdict, person, reason string) []byte {
	d := decision{Type: "approval.decision", Timestamp: time.Now().UTC().Format(time.RFC3339)}
	d.Data = decisionData{ApprovalID: l.Approval, Decision: verdict, Digest: l.Digest, Reason: reason}
	d.Data.Actor.ID = person
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // strings always encode
	}
	return b
}

// sign makes the headers of a Standard Webhooks request: HMAC-SHA-256 over
// "id.timestamp.body" with the bytes behind "whsec_".
func sign(secret, id string, at time.Time, body []byte) (http.Header, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return nil, fmt.Errorf("the callback's secret: %w", err)
	}
	ts := strconv.FormatInt(at.Unix(), 10)
	m := hmac.New(sha256.New, key)
	fmt.Fprintf(m, "%s.%s.%s", id, ts, body)
	h := http.Header{"Content-Type": {"application/json"}}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", ts)
	h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(m.Sum(nil)))
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
