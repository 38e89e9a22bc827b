package demo

import (
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqr"

// The library of the Standard Webhooks project is the judge of our signer.
func TestSign(t *testing.T) {
	body := decide(Link{Approval: "cs_1", Digest: "k.d"}, Approve, "you", "fine <&>")
	h, err := sign(testSecret, "msg_1", time.Now(), body)
	if err != nil {
		t.Fatal(err)
	}
	judge, err := standardwebhooks.NewWebhook(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	if err := judge.Verify(body, h); err != nil {
		t.Errorf("a right signature: %v", err)
	}
	at := time.Unix(1700000000, 0)
	want, err := judge.Sign("msg_1", at, body)
	if err != nil {
		t.Fatal(err)
	}
	if h, err = sign(testSecret, "msg_1", at, body); err != nil || h.Get("webhook-signature") != want {
		t.Errorf("signature %s, want %s (%v)", h.Get("webhook-signature"), want, err)
	}
	if err := judge.Verify(body, h); err == nil {
		t.Error("a stale signature verifies; the stale attack would prove nothing")
	}
	h, err = sign(testSecret, "msg_1", time.Now(), body)
	if err != nil {
		t.Fatal(err)
	}
	if err := judge.Verify([]byte(strings.Replace(string(body), "approve", "deny", 1)), h); err == nil {
		t.Error("another body verifies")
	}
	if _, err := sign("whsec_!", "msg_1", at, body); err == nil {
		t.Error("a secret that is not base64 was used")
	}
}

func TestFlipChangesOneCharacter(t *testing.T) {
	for in, want := range map[string]string{"": "x", "ab": "aA", "aA": "aB"} {
		if got := flip(in); got != want {
			t.Errorf("flip(%q) = %q", in, got)
		}
	}
}
