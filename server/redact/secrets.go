package redact

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
)

// span is a part of a text that is masked.
type span struct {
	from, to int
	kind     string
	inner    string // pointer inside a text that is JSON; "" in plain text
	form     []byte // JSON whose digest stands for the part; nil for the part's own text
}

// run is where the bytes from i on stop being in a class.
func run(s string, i int, in func(byte) bool) int {
	from := i
	for i < len(s) && in(s[i]) {
		i++
	}
	read(i - from)
	return i
}

// onRead is set by tests that count the bytes which are read one by one: their
// number must grow with the text, not with its square.
var onRead func(n int)

func read(n int) {
	if onRead != nil {
		onRead(n)
	}
}

// values finds the secrets that are told by how they look. What a mask can hide is
// bounded by the alphabet of its kind: no blank and no shell character goes
// under one, or the part is doubtful and the view incomplete. aws says that an AWS
// key id stands somewhere in the call, so what looks like its secret is one. Every
// search goes on behind what it has read, so the cost grows with the text alone.
func values(s string, aws bool) (found []span, doubt bool) {
	found, doubt = pem(s)
	for _, t := range tokens {
		found = t.find(s, found)
	}
	found = webTokens(s, found)
	found = schemes(s, found)
	found, odd := urls(s, found)
	if aws {
		found = awsSecrets(s, found)
	}
	return found, doubt || odd
}

var (
	pemBegin = regexp.MustCompile(`-{4,5} ?BEGIN [A-Za-z0-9 ]{1,60}-{4,5}`)
	pemEnd   = regexp.MustCompile(`-{4,5} ?END [A-Za-z0-9 ]{1,60}-{4,5}`)
	// headers and base64: in lines, which may be written as \n, or long runs with
	// blanks between them. Words in a row are neither.
	pemBody = regexp.MustCompile(`^(?:(?:\s|\\+[nrt])*[A-Za-z][A-Za-z0-9-]{1,40}: [A-Za-z0-9 ,.-]*)*` +
		`(?:(?:[A-Za-z0-9+/=]*[ \t]*(?:[\r\n]|\\+[nrt])[ \t]*)*[A-Za-z0-9+/=]*|[ \t]*(?:[A-Za-z0-9+/=]{16,}[ \t]+)*[A-Za-z0-9+/=]*[ \t]*)$`)
)

// pem finds blocks between BEGIN and END. A block that doesn't end is masked to the
// end of the text.
func pem(s string) (found []span, doubt bool) {
	for i := 0; strings.Contains(s[i:], "BEGIN "); {
		at := pemBegin.FindStringIndex(s[i:])
		if at == nil {
			return found, doubt
		}
		from, body := i+at[0], i+at[1]
		end := pemEnd.FindStringIndex(s[body:])
		if end == nil {
			return append(found, span{from: from, to: len(s), kind: "PEM block"}), true
		}
		doubt = doubt || !pemBody.MatchString(s[body:body+end[0]])
		i = body + end[1]
		found = append(found, span{from: from, to: i, kind: "PEM block"})
	}
	return found, doubt
}

// webTokens finds JWTs: eyJ is how base64 of `{"` begins.
func webTokens(s string, found []span) []span {
	for i := 0; ; {
		at := strings.Index(s[i:], "eyJ")
		if at < 0 {
			return found
		}
		at += i
		end := run(s, at, tokenByte)
		// The parts behind the first may be short, or empty (no signature).
		if head, rest, ok := strings.Cut(s[at:end], "."); ok && len(head) >= 10 && strings.Contains(rest, ".") {
			found = append(found, span{from: at, to: end, kind: "JWT"})
		}
		i = end
	}
}

// schemes finds the credentials of HTTP authentication: Bearer and Basic.
func schemes(s string, found []span) []span {
	for i := 0; i+6 < len(s); i++ {
		if s[i]|0x20 != 'b' {
			continue
		}
		var kind string
		at := i
		switch {
		case len(s) >= i+6 && strings.EqualFold(s[i:i+6], "bearer"):
			kind, at = "bearer token", i+6
		case strings.EqualFold(s[i:i+5], "basic"):
			kind, at = "basic credentials", i+5
		default:
			continue
		}
		if i > 0 && alnum(s[i-1]) && !encoded(s, i) {
			continue
		}
		from := run(s, at, func(c byte) bool { return c == ' ' || c == '\t' || c == '+' })
		for strings.HasPrefix(s[from:], "%20") {
			from += len("%20")
		}
		end := run(s, from, bearerByte)
		if from > at && from < end && credential(s[from:end], i == 0 && end == len(s) || afterHeader(s[:i])) {
			found = append(found, span{from: from, to: end, kind: kind})
		}
		i = max(i, end-1)
	}
	return found
}

// encoded tells whether the text before i is a percent-encoded character.
func encoded(s string, i int) bool { return i >= 3 && s[i-3] == '%' }

// afterHeader tells whether what stands before is the name of the header.
func afterHeader(before string) bool {
	before = strings.ToLower(before[max(0, len(before)-24):])
	return strings.HasSuffix(strings.TrimRight(before, ` :="'\`), "authorization")
}

// credential tells a credential from the next word of a sentence: "bearer of news",
// "basic needs". sure says that it can be nothing else.
func credential(s string, sure bool) bool {
	if sure || len(s) >= 24 {
		return true
	}
	if plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "=")); err == nil && slices.Contains(plain, ':') {
		return true
	}
	s = strings.TrimRight(s, ".-/")
	for i := range len(s) {
		if c := s[i]; digit(c) || i > 0 && 'A' <= c && c <= 'Z' || strings.IndexByte("_+=~/%", c) >= 0 {
			return true
		}
	}
	return false
}

// urls finds the user and password of URLs. With characters in them that mean
// something to a shell they are doubtful.
func urls(s string, found []span) (_ []span, doubt bool) {
	stop, last := 0, 0 // of the word without quotes that is being read: its end, its last @
	for i := 0; ; {
		at := strings.Index(s[i:], "://")
		if at < 0 {
			return found, doubt
		}
		from := i + at + len("://")
		end := run(s, from, func(c byte) bool { return c > ' ' && strings.IndexByte("/?#\"'<>`", c) < 0 })
		i = end
		user := strings.LastIndexByte(s[from:end], '@')
		if _, port, ok := strings.Cut(s[from:end], ":"); user < 0 && ok && run(port, 0, digit) < len(port) && port[0] != ']' && s[from] != '[' {
			// What stands for the port is no number: a password with a / or a ?
			// that should have been encoded. Readers that look for the last @ take it.
			if from >= stop {
				stop = run(s, from, func(c byte) bool { return c > ' ' && strings.IndexByte("\"'<>`", c) < 0 })
				last = from + strings.LastIndexByte(s[from:stop], '@')
			}
			user = last - from
		}
		if user > 0 {
			found = append(found, span{from: from, to: from + user, kind: "URL userinfo"})
			i = max(i, from+user)
			doubt = doubt || strings.ContainsAny(s[from:from+user], "$;|&(){}\\")
		}
	}
}

// signature tells whether a parameter's name is that of a signed URL's signature,
// which is all that opens it.
func signature(name string) bool {
	name = strings.ToLower(name)
	return name == "sig" || name == "signature" || strings.HasPrefix(name, "x-") && strings.HasSuffix(name, "-signature")
}

// parameters finds ?name=value, &name=value and #name=value where the name is a
// secret's.
func (n names) parameters(s string, found []span) []span {
	for i := 0; ; {
		at := strings.IndexAny(s[i:], "?&#")
		if at < 0 {
			return found
		}
		from := i + at + 1
		eq := run(s, from, func(c byte) bool { return tokenByte(c) || c == '%' || c == '[' || c == ']' })
		i = eq
		if eq == from || eq == len(s) || s[eq] != '=' || !n.secret(plainPercents(s[from:eq]), false) && !signature(s[from:eq]) {
			continue
		}
		if i = run(s, eq+1, bearerByte); i > eq+1 {
			found = append(found, span{from: eq + 1, to: i, kind: "URL parameter"})
		}
	}
}

// awsSecrets finds runs of exactly 40 characters that look like an AWS secret key,
// which has no mark of its own.
func awsSecrets(s string, found []span) []span {
	for i := 0; i < len(s); i++ {
		end := run(s, i, func(c byte) bool { return alnum(c) || c == '+' || c == '/' })
		from := i
		if end-from > 40 && s[from] == '/' { // a path's slash before it
			from++
		}
		if end-from == 40 && mixed(s[from:end]) {
			found = append(found, span{from: from, to: end, kind: "AWS secret key"})
		}
		i = end
	}
	return found
}

func mixed(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return 'A' <= r && r <= 'Z' }) &&
		strings.ContainsFunc(s, func(r rune) bool { return 'a' <= r && r <= 'z' })
}

// apart sorts spans and joins those that overlap; the wider kind names them.
func apart(found []span) []span {
	slices.SortStableFunc(found, func(a, b span) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
	out := found[:0]
	for _, f := range found {
		if len(out) > 0 && f.from < out[len(out)-1].to {
			last := &out[len(out)-1]
			if f.to > last.to {
				last.to, last.form = f.to, nil
			}
			continue
		}
		out = append(out, f)
	}
	return out
}
