package redact

import (
	"encoding/base64"
	"html"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/countersign-mcp/countersign/approvals"
)

var escaped = regexp.MustCompile(`\\u00[2-7][0-9a-fA-F]|\\/`)

// plainEscapes writes the JSON escapes of ASCII as what they mean.
func plainEscapes(s string) string {
	if !strings.Contains(s, `\u00`) && !strings.Contains(s, `\/`) {
		return s
	}
	return escaped.ReplaceAllStringFunc(s, func(e string) string {
		if e == `\/` {
			return "/"
		}
		n, _ := strconv.ParseUint(e[2:], 16, 8)
		return string(rune(n))
	})
}

// plainPercents writes the percent escapes of a URL as what they mean.
func plainPercents(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// plainLetters is a text without what can't be seen, the odd forms of plain
// characters written as those.
func plainLetters(s string) string {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return strings.Map(func(r rune) rune {
				if r < utf8.RuneSelf {
					return r
				}
				if approvals.Invisible(r) {
					return -1
				}
				if p, ok := plainForm(r); ok {
					return p
				}
				return r
			}, s)
		}
	}
	return s
}

// readings are the other texts that a reader of s may take it for.
func readings(s string) []string {
	var out []string
	for _, plain := range [...]string{plainEscapes(s), plainPercents(s), html.UnescapeString(s), plainLetters(s)} {
		if plain != s {
			out = append(out, plain)
		}
	}
	return out
}

// base64Least is the shortest run that is decoded: {"pin":1} and such.
const base64Least = 12

// encodedTexts finds runs of base64 that hold a text with a secret in it. Nobody
// reads base64, so the whole run is masked; what else it holds nobody sees, so it
// is doubtful.
func (d *drawing) encodedTexts(s string, level int, found []span) []span {
	if level >= levels {
		return found
	}
	for i := 0; i < len(s); i++ {
		end := run(s, i, func(c byte) bool { return alnum(c) || strings.IndexByte("+/_-", c) >= 0 })
		if end-i >= base64Least {
			if plain, ok := decodeBase64(s[i:end]); ok {
				if inner, c := d.secrets(plain, level+1); c == opaque || len(inner) > 0 {
					found = append(found, span{from: i, to: run(s, end, func(c byte) bool { return c == '=' }), kind: "base64 text"})
				}
			}
		}
		i = end
	}
	return found
}

// decodeBase64 decodes a run that holds readable text.
func decodeBase64(s string) (string, bool) {
	if len(s)%4 == 1 {
		return "", false
	}
	enc := base64.RawStdEncoding
	if strings.ContainsAny(s, "-_") {
		enc = base64.RawURLEncoding
	}
	b, err := enc.DecodeString(s)
	if err != nil || !utf8.Valid(b) {
		return "", false
	}
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' {
			return "", false
		}
	}
	return string(b), true
}
