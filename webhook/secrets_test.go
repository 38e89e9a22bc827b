package webhook

import (
	"testing"

	"github.com/countersign-mcp/countersign/approvals"
)

// From one request to the next other secrets verify, and other sources are there.
// Secrets that can't verify anything are refused, and the old ones stay.
func TestSecretsAreExchangedAtOnce(t *testing.T) {
	w := newWorld(t)
	const nextHook, nextSlack = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=", "another-signing-secret"
	body := w.decision(approvals.Approve, "acc-nobody").Body(w.clock.now())
	status := func(source, secret string) int {
		h, err := SignStandard(secret, "msg_1", w.clock.now(), body)
		if err != nil {
			t.Fatal(err)
		}
		return w.send(w.request("POST", w.site.URL+"/callbacks/"+source, body, h)).status
	}
	click := func(secret string) int {
		b := form("{}")
		return w.send(w.request("POST", w.site.URL+"/slack/interactions", b, slackHeaders(secret, w.clock.now(), b))).status
	}
	for what, bad := range map[string]Secrets{
		"no signing secret":      {Callbacks: map[string]Inbound{}},
		"a short signing secret": {SigningSecrets: []string{"short"}},
		"a hook without secrets": {SigningSecrets: []string{nextSlack}, Callbacks: map[string]Inbound{"jira": {Scheme: SchemeStandard}}},
		"a source of no name":    {SigningSecrets: []string{nextSlack}, Callbacks: map[string]Inbound{"": {Scheme: SchemeStandard, Secrets: []string{nextHook}}}},
	} {
		if w.s.Check(bad) == nil || w.s.Exchange(bad) == nil {
			t.Errorf("%s is taken", what)
		}
	}
	if status("jira", hookSecret) == 401 || status("desk", nextHook) != 404 || click(slackSecret) == 401 || click(nextSlack) != 401 {
		t.Error("after refused exchanges the old secrets don't hold")
	}
	next := Secrets{SigningSecrets: []string{nextSlack}, Callbacks: map[string]Inbound{"desk": {Scheme: SchemeStandard, Secrets: []string{nextHook}}}}
	if err := w.s.Exchange(next); err != nil {
		t.Fatal(err)
	}
	if got := status("jira", hookSecret); got != 404 {
		t.Errorf("a source that is gone: %d", got)
	}
	if got := status("desk", hookSecret); got != 401 {
		t.Errorf("the old secret at the new source: %d", got)
	}
	if got := status("desk", nextHook); got == 401 || got == 404 {
		t.Errorf("the new secret: %d", got)
	}
	if click(slackSecret) != 401 || click(nextSlack) == 401 {
		t.Error("Slack's secret was not exchanged")
	}
}
