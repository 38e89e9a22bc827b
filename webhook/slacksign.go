package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// Tolerance is how far a signed timestamp may be from our clock, either way.
const Tolerance = 5 * time.Minute

// errSignature says that a request isn't signed by somebody we share a secret
// with, now. It gives no detail: only a forger would need it.
var errSignature = errors.New("the signature does not verify")

var (
	slackSignature = regexp.MustCompile(`^v0=[0-9a-f]{64}$`)
	unixSeconds    = regexp.MustCompile(`^[0-9]{1,12}$`)
)

// slackVerifier checks Slack's v0 request signatures.
type slackVerifier struct{ secrets [][]byte }

// newSlackVerifier refuses to verify with nothing: an empty secret is one that
// everybody knows.
func newSlackVerifier(secrets []string) (*slackVerifier, error) {
	v := &slackVerifier{}
	for _, s := range secrets {
		if len(s) < 16 {
			return nil, errors.New("webhook: a Slack signing secret is at least 16 characters long")
		}
		v.secrets = append(v.secrets, []byte(s))
	}
	if len(v.secrets) == 0 {
		return nil, errors.New("webhook: Slack needs a signing secret")
	}
	return v, nil
}

// verify checks the signature over the raw body. The text of the header is what
// is hashed, so a timestamp must also look exactly like one.
func (v *slackVerifier) verify(h http.Header, body []byte, now time.Time) error {
	ts, ok := oneHeader(h, "X-Slack-Request-Timestamp")
	sig, ok2 := oneHeader(h, "X-Slack-Signature")
	if !ok || !ok2 || !slackSignature.MatchString(sig) || !fresh(ts, now) {
		return errSignature
	}
	good := false
	for _, secret := range v.secrets {
		m := hmac.New(sha256.New, secret)
		m.Write([]byte("v0:" + ts + ":"))
		m.Write(body)
		want := "v0=" + hex.EncodeToString(m.Sum(nil))
		if hmac.Equal([]byte(want), []byte(sig)) {
			good = true // the others are tried too: which one fits is no one's business
		}
	}
	if !good {
		return errSignature
	}
	return nil
}

// fresh tells whether ts, in Unix seconds, is within Tolerance of now.
func fresh(ts string, now time.Time) bool {
	if !unixSeconds.MatchString(ts) {
		return false
	}
	sec, err := strconv.ParseInt(ts, 10, 64)
	if err != nil {
		return false
	}
	return now.Sub(time.Unix(sec, 0)).Abs() <= Tolerance
}
