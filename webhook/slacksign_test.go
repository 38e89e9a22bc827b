package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// The vector of Slack's documentation.
const (
	vectorBody = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	vectorSig  = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
	vectorTS   = 1531420618
)

func TestSlackOfficialVector(t *testing.T) {
	v, err := newSlackVerifier([]string{slackSecret})
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	h.Set("x-slack-request-timestamp", strconv.Itoa(vectorTS))
	h.Set("x-slack-signature", vectorSig)
	if err := v.verify(h, []byte(vectorBody), time.Unix(vectorTS, 0)); err != nil {
		t.Fatal(err)
	}
	if err := v.verify(h, []byte(vectorBody+" "), time.Unix(vectorTS, 0)); err == nil {
		t.Fatal("a changed body verified")
	}
}

func TestSlackVerifierNeedsSecrets(t *testing.T) {
	for _, secrets := range [][]string{nil, {}, {""}, {slackSecret, ""}, {"short"}} {
		if _, err := newSlackVerifier(secrets); err == nil {
			t.Errorf("%d secrets of lengths that can't be real were accepted", len(secrets))
		}
	}
}

// TestSlackSignatureRows compares with slack-go where it looks at the same thing;
// where ours is stricter the row says so.
func TestSlackSignatureRows(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	body := []byte("payload=%7B%7D")
	at := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	sign := func(secret, ts string) string { return slacktest.Sign(secret, ts, body) }
	rows := []struct {
		name     string
		ts, sig  []string
		ok       bool
		stricter bool // slack-go accepts it
	}{
		{"good", []string{at(0)}, []string{sign(slackSecret, at(0))}, true, false},
		{"rotated secret", []string{at(0)}, []string{sign("the-next-signing-secret", at(0))}, true, false},
		{"299 s old", []string{at(-299 * time.Second)}, []string{sign(slackSecret, at(-299*time.Second))}, true, false},
		{"299 s ahead", []string{at(299 * time.Second)}, []string{sign(slackSecret, at(299*time.Second))}, true, false},
		{"302 s old", []string{at(-302 * time.Second)}, []string{sign(slackSecret, at(-302*time.Second))}, false, false},
		{"302 s ahead", []string{at(302 * time.Second)}, []string{sign(slackSecret, at(302*time.Second))}, false, false},
		{"wrong secret", []string{at(0)}, []string{sign("another-signing-secret", at(0))}, false, false},
		{"empty secret", []string{at(0)}, []string{sign("", at(0))}, false, false},
		{"no signature", []string{at(0)}, nil, false, false},
		{"no timestamp", nil, []string{sign(slackSecret, at(0))}, false, false},
		{"empty values", []string{""}, []string{""}, false, false},
		{"only a prefix", []string{at(0)}, []string{"v0="}, false, false},
		{"cut short", []string{at(0)}, []string{sign(slackSecret, at(0))[:40]}, false, false},
		{"v1", []string{at(0)}, []string{"v1" + sign(slackSecret, at(0))[2:]}, false, false},
		{"uppercase hex", []string{at(0)}, []string{"v0=" + strings.ToUpper(sign(slackSecret, at(0))[3:])}, false, true},
		{"two signatures", []string{at(0)}, []string{sign(slackSecret, at(0)), "v0=00"}, false, true},
		{"two timestamps", []string{at(0), at(0)}, []string{sign(slackSecret, at(0))}, false, true},
		{"timestamp with a plus", []string{"+" + at(0)}, []string{sign(slackSecret, "+"+at(0))}, false, true},
		{"timestamp too long", []string{"000" + at(0)}, []string{sign(slackSecret, "000"+at(0))}, false, true},
		{"timestamp of another", []string{at(time.Second)}, []string{sign(slackSecret, at(0))}, false, false},
	}
	ours, err := newSlackVerifier([]string{slackSecret, "the-next-signing-secret"})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			h := http.Header{"X-Slack-Request-Timestamp": r.ts, "X-Slack-Signature": r.sig}
			if got := ours.verify(h, body, now) == nil; got != r.ok {
				t.Errorf("ours says %v, want %v", got, r.ok)
			}
			if theirs := slackGo(h, body); theirs != (r.ok || r.stricter) {
				t.Errorf("slack-go says %v, and the row says ok %v, stricter %v", theirs, r.ok, r.stricter)
			}
		})
	}
}

func slackGo(h http.Header, body []byte) bool {
	for _, secret := range []string{slackSecret, "the-next-signing-secret"} {
		v, err := slack.NewSecretsVerifier(h, secret)
		if err != nil {
			continue
		}
		_, _ = v.Write(body)
		if v.Ensure() == nil {
			return true
		}
	}
	return false
}

func FuzzSlackVerify(f *testing.F) {
	f.Add(strconv.Itoa(vectorTS), vectorSig, []byte(vectorBody))
	f.Add(strconv.Itoa(vectorTS), "v0="+strings.Repeat("0", 64), []byte(""))
	v, err := newSlackVerifier([]string{slackSecret})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, ts, sig string, body []byte) {
		h := http.Header{"X-Slack-Request-Timestamp": {ts}, "X-Slack-Signature": {sig}}
		if v.verify(h, body, time.Unix(vectorTS, 0)) == nil && sig != slacktest.Sign(slackSecret, ts, body) {
			t.Fatalf("%q %q verified", ts, sig)
		}
	})
}
