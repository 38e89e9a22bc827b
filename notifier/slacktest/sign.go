package slacktest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// Sign is the value of X-Slack-Signature for a raw body, with the timestamp as
// it stands in X-Slack-Request-Timestamp.
func Sign(secret, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("v0:" + timestamp + ":"))
	mac.Write(body)
	return "v0=" + hex.EncodeToString(mac.Sum(nil))
}
