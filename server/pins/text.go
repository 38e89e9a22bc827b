package pins

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/redact"
)

// Text is what changed, for a person: place by place, long texts line by line.
// Every character of a stranger's that can't be seen is shown by its code, and
// nothing is cut but what stayed the same. Empty when nothing changed.
func (c Changes) Text() string {
	var w strings.Builder
	for _, p := range c.Identity {
		fmt.Fprintf(&w, "another server: %s\n", p.head())
		p.body(&w, "  ")
	}
	for _, p := range c.About {
		fmt.Fprintf(&w, "%s\n", p.head())
		p.body(&w, "  ")
	}
	for _, t := range c.Tools {
		fmt.Fprintf(&w, "tool %s: %s\n", t.Kind, redact.Visible(t.Name))
		for _, p := range t.Parts {
			fmt.Fprintf(&w, "  %s\n", p.head())
			p.body(&w, "    ")
		}
	}
	return w.String()
}

func (p Part) head() string {
	path := redact.Visible(strings.TrimPrefix(p.Path, "/"))
	switch {
	case p.Before == nil:
		return path + " (new)"
	case p.After == nil:
		return path + " (gone)"
	}
	return path
}

// body writes what was and what is.
func (p Part) body(w *strings.Builder, indent string) {
	for _, l := range lineDiff(linesOf(p.Before), linesOf(p.After)) {
		fmt.Fprintf(w, "%s%s\n", indent, l)
	}
}

// linesOf takes a value apart for reading: a text by lines and sentences, other
// things member by member.
func linesOf(v json.RawMessage) []string {
	if v == nil {
		return nil
	}
	var out []string
	if s, ok := action.Text(v); ok {
		for _, l := range strings.Split(s, "\n") {
			for _, s := range sentences(l) {
				out = append(out, redact.Visible(s))
			}
		}
		return out
	}
	for _, l := range strings.Split(indented(v), "\n") {
		out = append(out, redact.Visible(l))
	}
	return out
}

// longLine is how long a line may be that is shown in one piece, in bytes.
const longLine = 100

// sentences takes a long line apart behind the ends of its sentences, so that a
// change in one of them doesn't show all of them twice.
func sentences(line string) []string {
	var out []string
	for len(line) > longLine {
		at := -1
		for i := 0; i+1 < len(line); i++ {
			if strings.IndexByte(".;!?:", line[i]) >= 0 && line[i+1] == ' ' {
				at = i + 2
				break
			}
		}
		if at < 0 || at == len(line) {
			break
		}
		out = append(out, line[:at])
		line = line[at:]
	}
	return append(out, line)
}
