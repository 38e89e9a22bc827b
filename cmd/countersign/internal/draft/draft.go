// Package draft writes a starting policy for an upstream from its list of tools,
// for a person to go through. What the upstream says of itself is a stranger's
// word: it is quoted in comments, on one line and with every character that can't
// be seen shown by its code, and it makes no tool freer than its name does.
package draft

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/redact"
)

// Tool is a tool as its upstream lists it.
type Tool struct {
	Name string
	Raw  json.RawMessage // its definition, an object
}

// Upstream is what is drafted for.
type Upstream struct {
	Name  string // from the configuration
	Says  string // name and version as the server gives them
	Tools []Tool
	Notes []string // what was left out of the list, and why
}

// What a draft quotes and derives at most.
const (
	maxQuote  = 160 // characters of a description
	maxArgs   = 60  // arguments of one tool
	maxName   = 100 // bytes of an argument's name; YAML has a limit, too
	maxValues = 30  // of an enum
)

// Write writes a policy that loads and whose cases come out as they say. The order
// of the upstream's list does not matter.
func Write(w io.Writer, up Upstream) error {
	var d document
	tools, odd := split(up)
	d.head(up, odd)
	d.WriteString("tools:")
	for i := range tools {
		d.tool(up.Name, &tools[i])
	}
	if len(tools) == 0 {
		d.line(" {%s/*: deny}", up.Name)
	}
	d.tail(up.Name, tools)
	text := d.String()
	if err := check(text); err != nil {
		return err
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("writing the draft: %w", err)
	}
	return nil
}

// check makes sure of what is promised, whatever the upstream said.
func check(text string) error {
	set, err := policy.Parse("draft", []byte(text))
	if err != nil {
		return fmt.Errorf("no policy could be drafted from this list of tools (a policy has up to 1 MiB and 5000 tools): %w", err)
	}
	for _, r := range set.Test() {
		if len(r.Problems) > 0 {
			return errors.New("the draft's own case does not come out as it says: " + r.Name + ": " + r.Problems[0])
		}
	}
	return nil
}

// tool is a tool that a policy can list, and what the draft makes of it.
type tool struct {
	Tool
	tier  string // or deny
	why   string
	args  []argument
	title string
}

// split parts the tools that a policy can list from the others, and sorts them.
func split(up Upstream) (tools []tool, odd []string) {
	for _, t := range up.Tools {
		if !policy.CanList(up.Name, t.Name) {
			odd = append(odd, t.Name)
			continue
		}
		one := tool{Tool: t, args: arguments(t.Raw)}
		one.tier, one.why = tierOf(t)
		one.title = titleOf(t.Name, one.args)
		tools = append(tools, one)
	}
	slices.SortFunc(tools, func(a, b tool) int { return strings.Compare(a.Name, b.Name) })
	tools = slices.CompactFunc(tools, func(a, b tool) bool { return a.Name == b.Name })
	slices.Sort(odd)
	return tools, slices.Compact(odd)
}

// document is the text of a policy.
type document struct{ strings.Builder }

func (d *document) line(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

// comment writes one line that is a comment, whatever stands in it.
func (d *document) comment(indent, format string, args ...any) {
	d.line("%s# %s", indent, redact.Visible(fmt.Sprintf(format, args...)))
}

func (d *document) head(up Upstream, odd []string) {
	d.comment("", "A starting policy for the upstream %s, made from the list of its tools.", up.Name)
	if up.Says != "" {
		d.comment("", "It calls itself: %s", quoted(up.Says))
	}
	d.line(`#
# Go through it before you use it. The tiers come from the tools' names: what is not
# plainly a reading name needs a yes, and what runs commands or destroys is denied.
# What a server says of its tools is quoted, and has made none of them freer.
# Not listed = denied and not shown: a tool that a later version adds waits for you.
#
# Put your channel and approvers under routes. Then: countersign policy test FILE`)
	for _, n := range up.Notes {
		d.comment("", "Note: %s", quoted(n))
	}
	for _, name := range odd {
		d.comment("", "Left out, since no policy can list such a name: %s", quoted(name))
	}
	d.line("version: 2\npolicy_id: %s-draft\n", up.Name)
	d.line(`# Tools that write ask, too. Once you trust what they do, take this line out: they run
# without a yes then, and only what is destructive asks.
tiers: {write: review}
`)
}

func (d *document) tool(upstream string, t *tool) {
	d.line("") // ends the line before, or stands between two tools
	if says, ok := action.Member(t.Raw, "description"); ok {
		if text, ok := action.Text(says); ok && strings.TrimSpace(text) != "" {
			d.comment("  ", "it says: %s", quoted(text))
		}
	}
	if claims := claimsOf(t.Raw); len(claims) > 0 {
		d.comment("  ", "it claims: %s", strings.Join(claims, ", "))
	}
	d.comment("  ", "%s: %s", t.tier, t.why)
	if t.tier == "deny" || len(t.args) == 0 && t.title == "" {
		d.line("  %s/%s: %s", upstream, t.Name, t.tier)
		return
	}
	d.line("  %s/%s:\n    tier: %s", upstream, t.Name, t.tier)
	if t.title != "" {
		d.line("    title: %s", quote(t.title))
	}
	rules := 0
	for _, a := range t.args {
		rules += min(len(a.rule), 1)
	}
	if len(t.args) == 0 {
		return
	}
	if rules > 0 {
		d.line("    args:")
	}
	for _, a := range t.args {
		for _, hint := range a.hints {
			d.comment("      ", "%s: %s", quoted(a.name), hint)
		}
		if a.rule != "" {
			d.line("      %s: {%s}", quote(a.name), a.rule)
		}
	}
}

func (d *document) tail(upstream string, tools []tool) {
	d.line(`
routes:
  # Your channel's id, and people or groups of your configuration.
  default: {channels: [slack:C0REPLACETHIS], approvers: [group:ops], quorum: 1, timeout: 15m}

cases:
  - {name: a tool that is not listed, call: {tool: %s/zz-not-listed}, want: deny}`, upstream)
	for _, t := range tools {
		call := fmt.Sprintf("call: {tool: %s/%s, args: %s}", upstream, t.Name, example(t.args))
		switch t.tier {
		case "deny":
			d.line("  - {name: %s is denied, %s, want: deny, by: %s}", t.Name, call, quote("tool:"+upstream+"/"+t.Name))
		case "read":
			d.line("  - {name: %s runs, %s, want: allow}", t.Name, call)
		default:
			d.line("  - {name: %s asks, %s, want: review, routes: [default]}", t.Name, call)
		}
		if a := firstRequired(t.args); a != nil && t.tier != "deny" {
			d.line("  - {name: %s without an argument that it needs, call: {tool: %s/%s}, want: deny, by: %s}", t.Name, upstream, t.Name, quote("args:/"+action.EscapePointer(a.name)))
		}
	}
}

// quote writes a text as YAML and JSON both read it.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil { // of a text there is none
		return `""`
	}
	return string(b)
}

// quoted cuts a stranger's text for a comment, and says so. comment shows what can't
// be seen.
func quoted(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > maxQuote {
		return fmt.Sprintf("%s … (%d characters more)", string(r[:maxQuote]), len(r)-maxQuote)
	}
	return s
}
