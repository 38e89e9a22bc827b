package redact

import (
	"regexp"
	"strings"
	"unicode"
)

// flags finds the values of options: --password x, -token x.
func (h *hunt) flags() {
	s := h.s
	for i := 0; ; {
		at := strings.IndexByte(s[i:], '-')
		if at < 0 {
			return
		}
		at += i
		from := run(s, at, func(c byte) bool { return c == '-' })
		i = from
		if from-at > 2 || at > 0 && strings.IndexByte(" \t\n\"'`([,", s[at-1]) < 0 {
			continue
		}
		end := run(s, from, tokenByte)
		i = end
		name := s[from:end]
		if len(name) < 3 || end == len(s) || s[end] != ' ' && s[end] != '\t' || strings.HasPrefix(name, "no-") || !h.names.secret(name, false) {
			continue
		}
		i = h.operand(run(s, end, func(c byte) bool { return c == ' ' || c == '\t' }), true)
	}
}

// operand masks the value at from, in quotes or not, and returns its end. A value
// without quotes must look like a credential unless sure.
func (h *hunt) operand(from int, sure bool) int {
	s := h.s
	if from == len(s) {
		return from
	}
	if opens(s, from) {
		v, end := valueAt(s, from)
		h.hide(v, end)
		return end
	}
	if h.call(from) {
		return from
	}
	end := run(s, from, inWord)
	v := strings.TrimRight(s[from:end], ".")
	if v == "" || v[0] == '-' || !sure && (len(v) < 6 || !credential(v, false)) {
		return from
	}
	h.hide(from, from+len(v))
	return end
}

// beforeQuotes finds PASSWORD 'x' and IDENTIFIED BY 'x', as SQL has it, and what a
// sentence says: the password is x7.
func (h *hunt) beforeQuotes() {
	s := h.s
	for i := 0; ; {
		at := strings.IndexAny(s[i:], `"'`)
		if at < 0 {
			break
		}
		at += i
		i = at + 1
		before := strings.TrimRight(s[max(0, at-nameBack):at], " \t")
		if at == 0 || len(before) == at-max(0, at-nameBack) {
			continue
		}
		name := wordBefore(before)
		if strings.EqualFold(name, "by") {
			before = strings.ToLower(before)
			if !strings.Contains(before, "identified") && !strings.Contains(before, "password") {
				continue
			}
		} else if name == "" || !h.names.secret(name, false) {
			continue
		}
		v, end := valueAt(s, at)
		h.hide(v, end)
		i = max(i, end)
	}
	if !strings.ContainsAny(s, " \t") {
		return
	}
	done := 0 // what is inside a value is no name
	for _, m := range said.FindAllStringIndex(s, -1) {
		if m[1] >= done {
			done = h.operand(m[1], false)
		}
	}
}

var said = regexp.MustCompile(`(?i)\b(?:password|passwd|passphrase|passwort|(?:api|access|private|secret)[ _-]?key|token|secret)(?: is| to)?:?[ \t]+`)

// elements finds <password>x</password>.
func (h *hunt) elements() {
	s := h.s
	for i := 0; ; {
		at := strings.IndexByte(s[i:], '>')
		if at < 0 {
			return
		}
		at += i
		i = at + 1
		tag := s[max(0, at-2*nameBack):at]
		open := strings.LastIndexByte(tag, '<')
		if open < 0 {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimLeft(tag[open+1:], " "), " ")
		if name == "" || name[0] == '/' || !h.names.secret(name, false) {
			continue
		}
		end := strings.IndexByte(s[i:], '<')
		if end < 0 {
			end = len(s) - i
		}
		v := s[i : i+end]
		from := i + len(v) - len(strings.TrimLeft(v, " \t\r\n"))
		h.hide(from, max(from, i+len(strings.TrimRight(v, " \t\r\n"))))
		i += end
	}
}

var (
	pairIn = regexp.MustCompile(`(?i)\b(?:name|key|header|field|variable|var)["']?[ \t]*[:=][ \t]*["']?([\pL\pN_.:/-]+)["']?[,;]?\s+(?:- )?["']?(?:value|val|default)["']?[ \t]*[:=][ \t]*`)
	formIn = regexp.MustCompile(`(?i)form-data;[^\n]*?\bname="([^"\n]+)"[^\n]*\n(?:[^\r\n]+\r?\n)*\r?\n`)
)

// pairs finds the value that follows a secret's name in a field of its own, and in
// a form.
func (h *hunt) pairs() {
	s := h.s
	if !strings.ContainsAny(s, ":=") || !strings.ContainsAny(s, " \t\n") {
		return
	}
	done := 0
	for _, m := range pairIn.FindAllStringSubmatchIndex(s, -1) {
		if m[1] >= done && h.secretName(m) {
			done = h.operand(m[1], true)
		}
	}
	if !strings.Contains(s, "orm-data") {
		return
	}
	for _, m := range formIn.FindAllStringSubmatchIndex(s, -1) {
		if !h.secretName(m) {
			continue
		}
		end := len(s)
		if n := strings.Index(s[m[1]:], "\n--"); n >= 0 {
			end = m[1] + n
		}
		h.hide(m[1], m[1]+len(strings.TrimRight(s[m[1]:end], "\r")))
	}
}

func (h *hunt) secretName(m []int) bool {
	return m[3]-m[2] <= nameBack && h.names.secret(h.s[m[2]:m[3]], false)
}

// inCommand are the places of passwords in commands that people know by heart, and
// user:password@host without a scheme.
var inCommand = []struct {
	word string // without it there is nothing to look for
	at   *regexp.Regexp
}{
	{"curl", regexp.MustCompile(`[ \t](?:-u|--user|--proxy-user|-U)[ =]?["']?[^\s:'"@/]+:([^\s'"]+)`)},
	{"wget", regexp.MustCompile(`[ \t]--user=[^\s]+[ \t]+--password=["']?([^\s'"]+)`)},
	{"mysql", regexp.MustCompile(`\bmysql\w*[ \t][^\n;|]*?[ \t]?-p["']?([^\s'"]+)`)},
	{"mariadb", regexp.MustCompile(`\bmariadb\w*[ \t][^\n;|]*?[ \t]?-p["']?([^\s'"]+)`)},
	{"sshpass", regexp.MustCompile(`\bsshpass[ \t]+-p[ \t]*["']?([^\s'"]+)`)},
	{"redis-cli", regexp.MustCompile(`\bredis-cli[ \t][^\n;|]*?-a[ \t]+["']?([^\s'"]+)`)},
	{"@", regexp.MustCompile(`(?:^|[\s"'=(])(?:[A-Za-z][\w.+-]*):([^\s:@/'"]+)@(?:[A-Za-z][\w.-]*|\()`)},
}

// noPassword are schemes in which what stands before the @ is an address.
var noPassword = regexp.MustCompile(`(?i)(?:^|[\s"'=(])(?:mailto|sips?|xmpp|acct|im|news|cid|mid):$`)

func (h *hunt) commands() {
	for _, c := range inCommand {
		if !strings.Contains(h.s, c.word) {
			continue
		}
		for _, m := range c.at.FindAllStringSubmatchIndex(h.s, -1) {
			if c.word == "@" && noPassword.MatchString(h.s[m[0]:m[2]]) {
				continue
			}
			h.hide(m[2], m[3])
		}
	}
}

// quotedBefore is the name in quotes that the text ends with.
func quotedBefore(s string) (string, bool) {
	s = strings.TrimRight(s, " \t\r\n")
	if s == "" {
		return "", false
	}
	quote := s[len(s)-1]
	if quote != '"' && quote != '\'' {
		return "", false
	}
	s = strings.TrimRight(s[:len(s)-1], `\`)
	open := strings.LastIndexByte(s, quote)
	if open < 0 {
		return "", false
	}
	name := plainEscapes(s[open+1:])
	return name, !strings.ContainsFunc(name, unicode.IsControl)
}

// valueAt is the value that begins at i, without its quotes. One that does not end,
// or that is an object or array, counts to the end of the text.
func valueAt(s string, i int) (from, end int) {
	slashes := run(s, i, func(c byte) bool { return c == '\\' }) - i
	from = i + slashes
	if from == len(s) {
		return i, i
	}
	switch quote := s[from]; quote {
	case '"', '\'', '`':
		from++
		back := 0
		defer func() { read(end - from) }()
		for end = from; end < len(s); end++ {
			switch {
			case s[end] == '\\':
				back++
				continue
			case s[end] == quote && (back <= slashes && (slashes > 0 || back == 0)):
				return from, end - back
			}
			back = 0
		}
		return from, len(s)
	case '{', '[':
		return i, len(s)
	}
	return i, run(s, i, func(c byte) bool { return c > ' ' && strings.IndexByte(",}])'\"", c) < 0 })
}
