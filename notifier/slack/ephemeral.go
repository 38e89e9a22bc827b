package slack

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

const mostEphemeral = 3_000

// hookHosts serve response URLs. Nothing else is posted to: a response URL comes
// with a request.
var hookHosts = []string{"hooks.slack.com", "hooks.slack-gov.com"}

// Ephemeral tells the person who clicked something that only they see. The text
// is plain. A response URL takes five posts in thirty minutes; the error is a
// *notifier.Fail and holds nothing of the URL.
func (s *Slack) Ephemeral(ctx context.Context, responseURL, text string) error {
	if !s.mayAnswer(responseURL) {
		return refused("not a response URL of Slack")
	}
	body, err := json.Marshal(map[string]any{
		"response_type": "ephemeral", "replace_original": false,
		"text": escape(prefix(visible(text, true), mostEphemeral)),
	})
	if err != nil {
		return refused("not encodable")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, responseURL, bytes.NewReader(body))
	if err != nil {
		return refused("not a response URL of Slack")
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	resp, err := s.http.Do(req)
	if err != nil {
		return classify(err, true)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return byStatus(resp.StatusCode, true)
	}
	return nil
}

func (s *Slack) mayAnswer(responseURL string) bool {
	u, err := url.Parse(responseURL)
	if err != nil || u.User != nil || u.Opaque != "" {
		return false
	}
	if loopback(s.base.Hostname()) && u.Scheme == s.base.Scheme && u.Host == s.base.Host {
		return true // a stand-in for Slack in a test or a demonstration
	}
	for _, h := range hookHosts {
		if u.Scheme == "https" && strings.EqualFold(u.Host, h) {
			return true
		}
	}
	return false
}
