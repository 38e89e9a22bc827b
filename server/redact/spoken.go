package redact

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Secrets of a text that has no form are told by the name before them: PASSWORD=x,
// X-Api-Key: x, --token x, <password>x</password>, name: PIN and value: x. Which
// program reads the text, and how, nobody knows. So a mask is certain only where
// what it hides can be nothing but one plain word; see [bounded].

// nameBack is how far before its value a name may begin, in bytes.
const nameBack = 96

// hunt is the search in one text.
type hunt struct {
	names names
	s     string
	found []span
	doubt bool
}

// spoken finds the values behind the names of secrets.
func (n names) spoken(s string, found []span) (_ []span, doubt bool) {
	h := &hunt{names: n, s: s, found: found}
	h.assigned()
	h.flags()
	h.beforeQuotes()
	h.elements()
	h.pairs()
	h.commands()
	return h.found, h.doubt
}

// hide masks a value. What can be more than one word is doubtful.
func (h *hunt) hide(from, to int) {
	v := h.s[from:to]
	if v == "" || meansNothing(v) {
		return
	}
	h.found = append(h.found, span{from: from, to: to, kind: "value"})
	h.doubt = h.doubt || !bounded(v)
}

// bounded tells whether a value is one word that nobody runs and that names no
// place: no blank, quote, bracket or shell character, and neither a path nor a URL.
func bounded(v string) bool {
	if len(v) > 512 || strings.IndexByte("/.~", v[0]) >= 0 || strings.Contains(v, "://") {
		return false
	}
	for i := range len(v) {
		if c := v[i]; !alnum(c) && strings.IndexByte("_-.+=~!@#%^*,:/", c) < 0 {
			return false
		}
	}
	return true
}

// nothing are words that stand for a value, and types of values.
var nothing = []string{
	"true", "false", "null", "nil", "none", "undefined", "yes", "no", "string", "str", "text", "int", "integer", "number", "bool", "boolean",
	"any", "bytes", "object", "required", "optional", "unset", "empty", "redacted", "masked", "hidden",
}

// reference is a value that is found elsewhere: a variable, the placeholder of a
// template.
var reference = regexp.MustCompile(`^(?:\$[A-Z_][A-Z0-9_]*|\$?\{\{?[\pL\pN_ .:-]*\}?\}|<[\pL\pN_ -]+>|%[A-Z_]+%)$`)

func meansNothing(v string) bool {
	if slices.Contains(nothing, strings.ToLower(strings.TrimRight(v, ".,;"))) || len(v) <= nameBack && reference.MatchString(v) {
		return true
	}
	return strings.IndexByte("*xX.-_", v[0]) >= 0 && strings.Trim(v, v[:1]) == ""
}

// assigned finds what stands behind a name and a colon or an equals sign.
func (h *hunt) assigned() {
	for i := 0; ; {
		at := strings.IndexAny(h.s[i:], ":=")
		if at < 0 {
			return
		}
		at += i
		i = max(at+1, h.assignment(at))
	}
}

// assignment looks at the sign at i and returns how far it has read.
func (h *hunt) assignment(at int) int {
	s := h.s
	before := s[max(0, at-nameBack):at]
	name, quoted := quotedBefore(before)
	start := at
	if !quoted {
		if s[at] == ':' && (strings.HasSuffix(before, " ") || strings.HasPrefix(s[at:], "::") || strings.HasPrefix(s[at:], ":=") || strings.HasPrefix(s[at:], "://")) {
			return at
		}
		bare := strings.TrimRight(before, " \t")
		if s[at] == '=' {
			bare = strings.TrimRight(strings.TrimSuffix(bare, ":"), " \t") // secret := "x"
		}
		name = wordBefore(bare)
		start = at - len(before) + len(bare) - len(name)
	}
	if name == "" || !h.names.secret(name, false) {
		return at
	}
	from := run(s, at+1, func(c byte) bool { return c == '=' || c == '>' })
	from = run(s, from, func(c byte) bool { return c == ' ' || c == '\t' || quoted && c <= ' ' })
	if from == len(s) {
		return from
	}
	if !quoted && headed(name) {
		return h.header(start, from)
	}
	if quoted || opens(s, from) {
		v, end := valueAt(s, from)
		h.hide(v, end)
		h.doubt = h.doubt || end == len(s) && v > from // nothing ends it
		return end
	}
	if end := block(s, start, from); end > from {
		h.hide(from, end)
		return end
	}
	if h.call(from) {
		return from
	}
	end := run(s, from, inWord)
	v := s[from:end]
	switch {
	case v == "" || v == name:
		return from
	case s[at] == ':' || from > at+1:
		first, more := h.begins(start), wordsFollow(s, end)
		if first && more && phrase(name) {
			end = run(s, end, func(c byte) bool { return c != '\n' && c != '\r' })
		} else if (!first || more) && !credential(v, false) {
			return from
		}
	}
	h.hide(from, end)
	return end
}

// inWord tells which bytes may stand in a value without quotes.
func inWord(c byte) bool { return c > ' ' && strings.IndexByte("\"'`,;&|<>)}]", c) < 0 }

// opens tells whether a value in quotes begins at i, backslashes before it or not.
func opens(s string, i int) bool {
	i = run(s, i, func(c byte) bool { return c == '\\' })
	return i < len(s) && strings.IndexByte("\"'`", s[i]) >= 0
}

// call tells whether what begins at i is code that makes a value: os.Getenv("X"),
// creds[0], $(cat x), {{ .Values.x }}.
func (h *hunt) call(i int) bool {
	s, from := h.s, i
	if strings.HasPrefix(s[i:], "{{") || strings.HasPrefix(s[i:], "$(") || strings.HasPrefix(s[i:], "${") {
		return true
	}
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r != '_' && r != '.' && !unicode.IsLetter(r) {
			break
		}
		i += n
		read(n)
	}
	return from < i && i+1 < len(s) && strings.IndexByte("([{", s[i]) >= 0
}

// begins tells whether a name stands first on its line, in quotes or in brackets:
// there it is a field's, not a word of a sentence.
func (h *hunt) begins(start int) bool {
	i := start
	for i > 0 && strings.IndexByte(" \t-*>#", h.s[i-1]) >= 0 {
		i--
	}
	return i == 0 || strings.IndexByte("\n\r\"'`{[(,;&|", h.s[i-1]) >= 0
}

// wordsFollow tells whether the line goes on with another word.
func wordsFollow(s string, i int) bool {
	end := run(s, i, func(c byte) bool { return c == ' ' || c == '\t' })
	return end > i && end < len(s) && alnum(s[end])
}

// phrase tells whether a secret of this name may have blanks in it.
func phrase(name string) bool {
	w := strings.Join(words(name), "")
	for _, p := range []string{"password", "passphrase", "seedphrase", "recoveryphrase", "mnemonic", "passwort"} {
		if strings.HasSuffix(w, p) {
			return true
		}
	}
	return false
}

// wordBefore is the name that the text ends with.
func wordBefore(s string) string {
	i := len(s)
	for i > 0 {
		r, n := utf8.DecodeLastRuneInString(s[:i])
		if r != '_' && r != '-' && r != '.' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			break
		}
		i -= n
	}
	return s[i:]
}

// headed tells whether a name is that of a header whose whole line is secret.
func headed(name string) bool {
	switch strings.ToLower(name) {
	case "authorization", "proxy-authorization", "cookie", "set-cookie":
		return true
	}
	return false
}

// header masks the rest of a header's line, which begins at from: to the quote that
// the header stands in, or to the end of the line. The name of a scheme is shown.
func (h *hunt) header(start, from int) int {
	s := h.s
	if start > 0 && strings.IndexByte("\"'`", s[start-1]) >= 0 {
		return h.line(from, s[start-1])
	}
	if strings.IndexByte("\"'`", s[from]) < 0 {
		return h.line(from, 0)
	}
	v, end := valueAt(s, from)
	h.hide(v, end)
	return end
}

// line masks what stands on the line, up to the quote that the whole is in.
func (h *hunt) line(from int, outer byte) int {
	s := h.s
	end := from
	for inner := byte(0); end < len(s) && s[end] != '\n' && s[end] != '\r'; end++ {
		c := s[end]
		if c != '"' && c != '\'' && c != '`' {
			continue
		}
		if c == outer && s[end-1] != '\\' || inner == 0 && s[end-1] != '=' {
			break
		}
		if inner == 0 { // of a part of the value: username="ana"
			inner = c
		} else if inner == c {
			inner = 0
		}
	}
	v := strings.TrimRight(s[from:end], ` \`)
	if word, rest, ok := strings.Cut(v, " "); ok && isScheme(word) {
		from += len(v) - len(strings.TrimLeft(rest, " "))
	} else if isScheme(v) {
		return end
	}
	if to := from + len(strings.TrimRight(s[from:end], ` \`)); to > from {
		h.hide(from, to)
	}
	return end
}

func isScheme(word string) bool {
	switch strings.ToLower(word) {
	case "bearer", "basic", "digest", "token", "negotiate", "aws4-hmac-sha256", "apikey":
		return true
	}
	return false
}

// block is the end of a YAML block that begins at from ("|" and a line break): the
// lines that are indented more than the name's.
func block(s string, start, from int) int {
	i := run(s, from, func(c byte) bool { return strings.IndexByte("|>+-0123456789", c) >= 0 })
	if i == from || s[from] != '|' && s[from] != '>' || i == len(s) || s[i] != '\n' && s[i] != '\r' {
		return from
	}
	line := strings.LastIndexByte(s[:start], '\n') + 1
	indent := run(s, line, func(c byte) bool { return c == ' ' }) - line
	end := i
	for end < len(s) {
		next := end + 1
		text := run(s, next, func(c byte) bool { return c == ' ' })
		if text < len(s) && s[text] != '\n' && s[text] != '\r' && text-next <= indent {
			break
		}
		n := strings.IndexByte(s[next:], '\n')
		if n < 0 {
			return len(s)
		}
		end = next + n
	}
	return end
}
