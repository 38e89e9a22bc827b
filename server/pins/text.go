package pins

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/redact"
)

// Text is what changed, for a person: place by place, long texts line by line.
// Every character of a stranger's that can't be seen is shown by its code, what
// stands in ⟨ ⟩ is ours, and nothing is cut but what stayed the same. Empty when
// nothing changed.
func (c Changes) Text() string {
	var w strings.Builder
	for _, p := range c.Identity {
		p.write(&w, "another server: ", "  ")
	}
	for _, p := range c.About {
		p.write(&w, "", "  ")
	}
	for _, t := range c.Tools {
		fmt.Fprintf(&w, "tool %s: %s\n", t.Kind, redact.Visible(t.Name))
		for _, p := range t.Parts {
			if t.Kind != Changed && p.Path == "/name" {
				continue
			}
			p.write(&w, "  ", "    ")
		}
	}
	return w.String()
}

func (p Part) write(w *strings.Builder, before, indent string) {
	fmt.Fprintf(w, "%s%s%s\n", before, redact.Visible(strings.TrimPrefix(p.Path, "/")), p.turn())
	was, is := p.lines()
	for _, l := range lineDiff(was, is) {
		fmt.Fprintf(w, "%s%s\n", indent, l)
	}
}

// turn says what became of the place, where its lines alone can't.
func (p Part) turn() string {
	a, b := kindOf(p.Before), kindOf(p.After)
	switch {
	case a == "":
		return " (new)"
	case b == "":
		return " (gone)"
	case a != b:
		return fmt.Sprintf(" (%s, now %s)", a, b)
	}
	return ""
}

// longLine is from how many bytes on a line is taken apart.
const longLine = 100

// lines takes both values apart in the same way, so that two that differ never give
// the same lines: short ones as JSON, long ones member by member, and texts of
// several lines or sentences by those.
func (p Part) lines() (was, is []string) {
	long := false
	for _, v := range []json.RawMessage{p.Before, p.After} {
		s, _ := action.Text(v)
		long = long || len(v) > longLine || strings.Contains(s, "\n")
	}
	return linesOf(p.Before, long), linesOf(p.After, long)
}

func linesOf(v json.RawMessage, long bool) []string {
	if v == nil {
		return nil
	}
	if !long {
		return []string{redact.Visible(string(v))}
	}
	var out []string
	if s, ok := action.Text(v); ok {
		for l := range strings.SplitSeq(s, "\n") {
			out = append(out, sentences(l)...)
		}
		return out
	}
	for l := range strings.SplitSeq(indented(v), "\n") {
		out = append(out, redact.Visible(l))
	}
	return out
}

// goesOn begins a line that stands behind the one before it, after a blank.
const goesOn = "⟨…⟩ "

// sentences takes a long line apart behind the ends of its sentences, so that a
// change in one of them doesn't show all of them twice.
func sentences(line string) []string {
	var out []string
	begin := ""
	for len(line) > longLine {
		at := endOfSentence(line)
		if at < 0 {
			break
		}
		out = append(out, begin+shown(line[:at]))
		line, begin = line[at+1:], goesOn
	}
	return append(out, begin+shown(line))
}

// endOfSentence is where the blank behind the first sentence stands; -1 when the
// line has no two.
func endOfSentence(line string) int {
	for i := 1; i+1 < len(line); i++ {
		if line[i] == ' ' && strings.IndexByte(".;!?:", line[i-1]) >= 0 {
			return i
		}
	}
	return -1
}

// shown is a line of a stranger's; a blank at its end can be seen, too.
func shown(line string) string {
	end := strings.TrimRight(line, " ")
	return redact.Visible(end) + strings.Repeat("⟦U+0020⟧", len(line)-len(end))
}

func indented(v json.RawMessage) string {
	out := jsontext.Value(append([]byte(nil), v...))
	if err := out.Indent(jsontext.WithIndent("  ")); err != nil {
		return string(v)
	}
	return string(out)
}
