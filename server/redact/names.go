package redact

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// secretNames are the names of members whose value is masked, without
// separators and in lower case. A name also counts when its last words are one
// of these: "stripe_api_key", "userPassword".
var secretNames = []string{
	"password", "passwd", "passphrase", "passcode", "pwd", "pin", "otp", "totp", "cvv", "cvc",
	"secret", "clientsecret", "secretkey", "token", "bearer", "jwt",
	"apikey", "accesskey", "accesskeyid", "privatekey", "signingkey", "encryptionkey", "sshkey", "masterkey",
	"authkey", "accountkey", "storagekey", "sharedkey", "consumerkey", "subscriptionkey", "functionskey", "deploykey", "licensekey",
	"hmackey", "hostkey", "tlskey", "sslkey",
	"authorization", "auth", "credential", "cred", "cookie", "session", "sessionid",
	"mnemonic", "seedphrase", "recoveryphrase", "recoverycode", "backupcode", "sharedaccesssignature",
	"passwort", "kennwort", "contraseña", "contrasena", "senha", "motdepasse", "wachtwoord", "parola", "пароль", "密码", "密碼", "パスワード", "비밀번호",
}

// textNames are those of secrets where the value is a text; a number or a word of
// yes and no under them is the outcome of something.
var textNames = []string{"pass"}

// glued are long enough to be told at the end of a name that has no word
// boundaries: "userpassword", "accesstoken".
var glued = []string{
	"password", "passwd", "passphrase", "secret", "token", "apikey", "accesskey", "privatekey", "secretkey",
	"authorization", "credential", "sessionid",
}

// trailing are words that may follow the name of a secret without making it
// anything else.
var trailing = []string{
	"value", "text", "string", "raw", "plain", "plaintext", "hash", "base64", "b64", "hex", "pem",
	"header", "confirm", "confirmation", "again", "repeat", "old", "new", "current",
}

// names decides which members are masked.
type names struct {
	extra   []string
	longest int // of all names that are compared, in bytes
}

func newNames(extra []string) names {
	var n names
	for _, s := range secretNames {
		n.longest = max(n.longest, len(s))
	}
	for _, e := range extra {
		if joined := strings.Join(words(e), ""); joined != "" {
			n.extra = append(n.extra, joined)
			n.longest = max(n.longest, len(joined))
		}
	}
	return n
}

// secret tells whether a member of this name is masked. A plural ("tokens") is
// masked unless it is a number, which counts them.
func (n names) secret(name string, number bool) bool {
	w := words(name)
	for len(w) > 1 && slices.Contains(trailing, w[len(w)-1]) {
		w = w[:len(w)-1]
	}
	if len(w) == 0 {
		return false
	}
	last := w[len(w)-1]
	if n.endsIn(w) || !number && slices.Contains(textNames, last) {
		return true
	}
	if one, plural := strings.CutSuffix(last, "s"); plural && !number && one != "" {
		return n.endsIn(append(slices.Clone(w[:len(w)-1]), one))
	}
	return false
}

func (n names) endsIn(w []string) bool {
	joined := strings.Join(w, "")
	end := ""
	for i := len(w) - 1; i >= 0 && len(end) < n.longest; i-- {
		end = w[i] + end
		if slices.Contains(secretNames, end) || slices.Contains(n.extra, end) {
			return true
		}
	}
	return slices.ContainsFunc(glued, func(s string) bool { return strings.HasSuffix(joined, s) })
}

// words splits a name at separators and at changes of case, folds it and drops
// digits at the end: "API-Key2" is api, key.
func words(name string) []string {
	runes := []rune(norm.NFKC.String(name))
	var out []string
	var word []rune
	flush := func() {
		if w := strings.TrimRight(strings.ToLower(string(word)), "0123456789"); w != "" {
			out = append(out, w)
		}
		word = word[:0]
	}
	for i, r := range runes {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			flush()
			continue
		}
		if i > 0 && unicode.IsUpper(r) {
			next := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if unicode.IsLower(runes[i-1]) || unicode.IsUpper(runes[i-1]) && next {
				flush()
			}
		}
		word = append(word, r)
	}
	flush()
	return out
}
