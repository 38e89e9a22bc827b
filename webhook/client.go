package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// Client speaks to the operators' API. Its errors are *Problem where the server
// answered one; errors.Is finds the approvals.Conflict in it.
type Client struct {
	base  *url.URL
	token string
	http  *http.Client
}

const clientAnswerLimit = 32 << 20 // 500 approvals with a view each

// NewClient takes the admin listener's URL, https unless its host is loopback,
// and an operator's token.
func NewClient(adminURL, token string) (*Client, error) {
	u, err := url.Parse(adminURL)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("the admin address is a URL like http://127.0.0.1:8091")
	}
	if u.Scheme != "https" && !(u.Scheme == "http" && loopbackHost(u.Hostname())) {
		return nil, errors.New("the admin address must be https, since a token goes there")
	}
	if token == "" {
		return nil, errors.New("there is no operator's token; put one whose SHA-256 is under admin.tokens into COUNTERSIGN_ADMIN_TOKEN")
	}
	hc := &http.Client{Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &Client{base: u, token: token, http: hc}, nil
}

// List lists approvals in these states (all when there are none), at most max
// (0: the server's default).
func (c *Client) List(ctx context.Context, states []approvals.State, max int) ([]Approval, error) {
	q := url.Values{}
	if len(states) > 0 {
		words := make([]string, len(states))
		for i, s := range states {
			words[i] = string(s)
		}
		q.Set("state", strings.Join(words, ","))
	}
	if max > 0 {
		q.Set("max", strconv.Itoa(max))
	}
	var out ApprovalList
	err := c.do(ctx, http.MethodGet, nil, q, &out)
	return out.Approvals, err
}

// Show reads one approval.
func (c *Client) Show(ctx context.Context, id string) (Approval, error) {
	return c.one(ctx, http.MethodGet, nil, id)
}

// Decide votes. digest is Approval.Digest of what was read; empty votes on
// whatever the id stands for.
func (c *Client) Decide(ctx context.Context, id string, v approvals.Verdict, reason, digest string) (Approval, error) {
	body := map[string]any{"decision": v.String(), "reason": reason, "digest": digest}
	return c.one(ctx, http.MethodPost, body, id, "decision")
}

// Revoke takes an approval back that was not claimed yet.
func (c *Client) Revoke(ctx context.Context, id, reason string) (Approval, error) {
	return c.one(ctx, http.MethodPost, map[string]any{"reason": reason}, id, "revoke")
}

// Resolve says what became of a call whose outcome is unknown.
func (c *Client) Resolve(ctx context.Context, id string, ran bool, note string) (Approval, error) {
	return c.one(ctx, http.MethodPost, map[string]any{"ran": ran, "note": note}, id, "resolve")
}

func (c *Client) one(ctx context.Context, method string, body any, path ...string) (Approval, error) {
	var a Approval
	err := c.do(ctx, method, body, nil, &a, path...)
	return a, err
}

func (c *Client) do(ctx context.Context, method string, body any, q url.Values, out any, path ...string) error {
	if len(path) > 0 && !approvalID.MatchString(path[0]) {
		return fmt.Errorf("asking %s: this is not an approval's id", c.base.Host)
	}
	u := c.base.JoinPath(append([]string{"v1", "approvals"}, path...)...)
	u.RawQuery = q.Encode()
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), r)
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("no gate answers at %s: %w; is it running, and is this its admin.listen?", c.base.Host, dial.Err)
	case err != nil:
		return fmt.Errorf("asking %s: %w", c.base.Host, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, clientAnswerLimit))
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", c.base.Host, err)
	}
	if resp.StatusCode != http.StatusOK {
		return readProblem(resp.StatusCode, b)
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", c.base.Host, err)
	}
	return nil
}

func readProblem(status int, b []byte) error {
	p := &Problem{}
	if err := json.Unmarshal(b, p); err != nil || p.Title == "" {
		p = &Problem{Type: "about:blank", Title: http.StatusText(status)}
	}
	p.Status = status
	return p
}
