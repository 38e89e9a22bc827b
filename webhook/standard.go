package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// SchemeStandard is the name of the Standard Webhooks scheme, version v1
// (HMAC-SHA-256).
const SchemeStandard = "standard-webhooks"

const (
	minSecret     = 24 // bytes, as the specification says
	maxSignatures = 10
)

var webhookID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

var errWeakSecret = errors.New("a secret is base64 of at least 24 random bytes, for example from: openssl rand -base64 32")

// standardVerifier checks Standard Webhooks signatures.
type standardVerifier struct{ secrets [][]byte }

func newStandardVerifier(secrets []string) (*standardVerifier, error) {
	v := &standardVerifier{}
	for _, s := range secrets {
		b, err := standardSecret(s)
		if err != nil {
			return nil, err
		}
		v.secrets = append(v.secrets, b)
	}
	if len(v.secrets) == 0 {
		return nil, errors.New("there is no secret to verify with")
	}
	return v, nil
}

func standardSecret(s string) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, "whsec_"))
	if err != nil || len(b) < minSecret {
		return nil, errWeakSecret
	}
	return b, nil
}

// verify returns the webhook-id. Every signature that is there may be the right
// one, of any of our secrets: that is how either side rotates.
func (v *standardVerifier) verify(h http.Header, body []byte, now time.Time) (id string, err error) {
	id, ok := oneHeader(h, "Webhook-Id")
	ts, ok2 := oneHeader(h, "Webhook-Timestamp")
	list, ok3 := oneHeader(h, "Webhook-Signature")
	if !ok || !ok2 || !ok3 || !webhookID.MatchString(id) || !fresh(ts, now) {
		return "", errSignature
	}
	given := strings.Split(list, " ")
	if len(given) > maxSignatures {
		return "", errSignature
	}
	good := false
	for _, secret := range v.secrets {
		want := []byte("v1," + base64.StdEncoding.EncodeToString(standardSum(secret, id, ts, body)))
		for _, g := range given {
			if hmac.Equal(want, []byte(g)) {
				good = true
			}
		}
	}
	if !good {
		return "", errSignature
	}
	return id, nil
}

func standardSum(secret []byte, id, ts string, body []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(id + "." + ts + "."))
	m.Write(body)
	return m.Sum(nil)
}

// SignStandard makes the headers of a Standard Webhooks request, for whoever
// sends a callback to us.
func SignStandard(secret, id string, at time.Time, body []byte) (http.Header, error) {
	key, err := standardSecret(secret)
	if err != nil {
		return nil, err
	}
	if !webhookID.MatchString(id) {
		return nil, errors.New("a webhook-id is 1 to 128 of A-Z a-z 0-9 _ -")
	}
	ts := strconv.FormatInt(at.Unix(), 10)
	h := http.Header{}
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", ts)
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(standardSum(key, id, ts, body)))
	return h, nil
}
