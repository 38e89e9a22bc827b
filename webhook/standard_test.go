package webhook

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	oracle "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func hookHeaders(id, ts, sig string) http.Header {
	return http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {ts}, "Webhook-Signature": {sig}}
}

// Published vectors of the specification's own libraries.
func TestStandardVectors(t *testing.T) {
	rows := []struct{ secret, id, ts, body, sig string }{
		{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`,
			"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
		{"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", "1649367553",
			`{"email":"test@example.com","username":"test_user"}`, "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="},
	}
	for _, r := range rows {
		v, err := newStandardVerifier([]string{r.secret})
		if err != nil {
			t.Fatal(err)
		}
		sec, _ := strconv.ParseInt(r.ts, 10, 64)
		id, err := v.verify(hookHeaders(r.id, r.ts, r.sig), []byte(r.body), time.Unix(sec, 0))
		if err != nil || id != r.id {
			t.Errorf("%s: %q %v", r.id, id, err)
		}
		h, err := SignStandard(r.secret, r.id, time.Unix(sec, 0), []byte(r.body))
		if err != nil || h.Get("webhook-signature") != r.sig {
			t.Errorf("signed %q, %v", h.Get("webhook-signature"), err)
		}
	}
}

func TestStandardSecrets(t *testing.T) {
	enc := func(n int) string { return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for _, s := range [][]string{nil, {""}, {"whsec_"}, {enc(1)}, {enc(23)}, {hookSecret, enc(0)}, {"whsec_not base64"}} {
		if _, err := newStandardVerifier(s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
	for _, s := range []string{enc(24), enc(64), strings.TrimPrefix(enc(32), "whsec_")} {
		if _, err := newStandardVerifier([]string{s}); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	if _, err := SignStandard(enc(3), "id", time.Now(), nil); err == nil {
		t.Error("signed with a weak secret")
	}
	if _, err := SignStandard(enc(32), "a.b", time.Now(), nil); err == nil {
		t.Error("signed an id with a dot: it could move bytes between id and timestamp")
	}
}

// TestStandardRows compares with the specification's library where both look at
// the same thing. The library has no injected clock, so the rows sign for now.
func TestStandardRows(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	body := []byte(`{"type":"approval.decision"}`)
	other := "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	ts := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	sign := func(secret, id, ts string) string {
		key, err := standardSecret(secret)
		if err != nil {
			t.Fatal(err)
		}
		return "v1," + base64.StdEncoding.EncodeToString(standardSum(key, id, ts, body))
	}
	good := sign(hookSecret, "msg_1", ts(0))
	bad := sign("whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 32)), "msg_1", ts(0))
	rows := []struct {
		name     string
		h        http.Header
		ok       bool
		stricter bool
	}{
		{"good", hookHeaders("msg_1", ts(0), good), true, false},
		{"old secret of ours", hookHeaders("msg_1", ts(0), sign(other, "msg_1", ts(0))), true, false},
		{"one of many", hookHeaders("msg_1", ts(0), "v2,x "+bad+" "+good), true, false},
		{"the tenth", hookHeaders("msg_1", ts(0), strings.Repeat(bad+" ", 9)+good), true, false},
		{"the eleventh", hookHeaders("msg_1", ts(0), strings.Repeat(bad+" ", 10)+good), false, true},
		{"299 s old", hookHeaders("msg_1", ts(-299*time.Second), sign(hookSecret, "msg_1", ts(-299*time.Second))), true, false},
		{"302 s old", hookHeaders("msg_1", ts(-302*time.Second), sign(hookSecret, "msg_1", ts(-302*time.Second))), false, false},
		{"302 s ahead", hookHeaders("msg_1", ts(302*time.Second), sign(hookSecret, "msg_1", ts(302*time.Second))), false, false},
		{"wrong secret", hookHeaders("msg_1", ts(0), bad), false, false},
		{"many, none right", hookHeaders("msg_1", ts(0), bad+" "+bad), false, false},
		{"empty signature", hookHeaders("msg_1", ts(0), "v1,"), false, false},
		{"cut signature", hookHeaders("msg_1", ts(0), good[:20]), false, false},
		{"no version", hookHeaders("msg_1", ts(0), good[3:]), false, false},
		{"v2", hookHeaders("msg_1", ts(0), "v2"+good[2:]), false, false},
		{"another id", hookHeaders("msg_2", ts(0), good), false, false},
		{"another time", hookHeaders("msg_1", ts(time.Second), good), false, false},
		{"a plus", hookHeaders("msg_1", "+"+ts(0), good), false, true},
		{"leading zeros", hookHeaders("msg_1", "00"+ts(0), good), false, true},
		{"an id with a dot", hookHeaders("a.b", ts(0), sign(hookSecret, "a.b", ts(0))), false, true},
		{"an id too long", hookHeaders(strings.Repeat("a", 129), ts(0), sign(hookSecret, strings.Repeat("a", 129), ts(0))), false, true},
		{"no id", http.Header{"Webhook-Timestamp": {ts(0)}, "Webhook-Signature": {good}}, false, false},
		{"no timestamp", http.Header{"Webhook-Id": {"msg_1"}, "Webhook-Signature": {good}}, false, false},
		{"no signature", http.Header{"Webhook-Id": {"msg_1"}, "Webhook-Timestamp": {ts(0)}}, false, false},
		{"two ids", http.Header{"Webhook-Id": {"msg_1", "msg_2"}, "Webhook-Timestamp": {ts(0)}, "Webhook-Signature": {good}}, false, true},
		{"two timestamps", http.Header{"Webhook-Id": {"msg_1"}, "Webhook-Timestamp": {ts(0), ts(1)}, "Webhook-Signature": {good}}, false, true},
		{"two signature headers", http.Header{"Webhook-Id": {"msg_1"}, "Webhook-Timestamp": {ts(0)}, "Webhook-Signature": {good, bad}}, false, true},
		{"svix names", http.Header{"Svix-Id": {"msg_1"}, "Svix-Timestamp": {ts(0)}, "Svix-Signature": {good}}, false, false},
	}
	v, err := newStandardVerifier([]string{hookSecret, other})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			_, err := v.verify(r.h, body, now)
			if (err == nil) != r.ok {
				t.Errorf("ours says %v, want ok %v", err, r.ok)
			}
			if theirs := standardOracle(t, r.h, body, hookSecret, other); theirs != (r.ok || r.stricter) {
				t.Errorf("the library says %v, and the row says ok %v, stricter %v", theirs, r.ok, r.stricter)
			}
		})
	}
}

func standardOracle(t *testing.T, h http.Header, body []byte, secrets ...string) bool {
	t.Helper()
	for _, s := range secrets {
		wh, err := oracle.NewWebhook(s)
		if err != nil {
			t.Fatal(err)
		}
		if wh.Verify(body, h) == nil {
			return true
		}
	}
	return false
}

func FuzzStandardVerify(f *testing.F) {
	f.Add("msg_1", "1614265330", "v1,", []byte("{}"))
	f.Add("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", []byte(`{"test": 2432232314}`))
	v, err := newStandardVerifier([]string{hookSecret})
	if err != nil {
		f.Fatal(err)
	}
	key, _ := standardSecret(hookSecret)
	f.Fuzz(func(t *testing.T, id, ts, sig string, body []byte) {
		_, err := v.verify(hookHeaders(id, ts, sig), body, time.Unix(1614265330, 0))
		want := "v1," + base64.StdEncoding.EncodeToString(standardSum(key, id, ts, body))
		if err == nil && !strings.Contains(sig, want) {
			t.Fatalf("%q %q %q verified", id, ts, sig)
		}
	})
}
