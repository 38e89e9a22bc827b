package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// testCase is one of the policy's own cases: a call, and what is to become of it.
type testCase struct {
	name   string
	facts  Facts
	want   Effect
	by     string   // a reason that has to carry the effect
	routes []string // nil: any
	line   int
}

// Result is what became of one case.
type Result struct {
	Name     string
	Line     int
	Problems []string // what is not as expected; empty when all is
}

// Cases counts the policy's cases.
func (s *Set) Cases() int { return len(s.cases) }

// Test judges the policy's cases. It needs nothing but the file: no
// configuration, limits, people or channels. A case's roles and labels are taken
// as given.
func (s *Set) Test() []Result {
	out := make([]Result, len(s.cases))
	for i := range s.cases {
		c := &s.cases[i]
		out[i] = Result{Name: c.name, Line: c.line, Problems: c.problems(s.Judge(c.facts))}
	}
	return out
}

func (c *testCase) problems(v Verdict) []string {
	var out []string
	var ids, routes []string
	for _, r := range v.Reasons {
		if r.Effect == v.Effect {
			ids = append(ids, r.ID)
		}
	}
	for _, r := range v.Routes {
		routes = append(routes, r.Name)
	}
	slices.Sort(routes)
	if v.Effect != c.want {
		out = append(out, fmt.Sprintf("want %s, got %s by %s", c.want, v.Effect, strings.Join(ids, ", ")))
	} else if c.by != "" && !slices.Contains(ids, c.by) {
		out = append(out, fmt.Sprintf("want %s by %s, got it by %s", c.want, c.by, strings.Join(ids, ", ")))
	}
	if c.routes != nil && !slices.Equal(routes, c.routes) {
		out = append(out, fmt.Sprintf("want the routes %s, got %s", named(c.routes), named(routes)))
	}
	return out
}

func named(routes []string) string {
	if len(routes) == 0 {
		return "(none)"
	}
	return strings.Join(routes, ", ")
}

func (l *loader) cases(n *yaml.Node) []testCase {
	if n.Kind != yaml.SequenceNode {
		l.fail(n, "cases is a list")
		return nil
	}
	var out []testCase
	for _, c := range n.Content {
		out = append(out, l.testCase(c))
	}
	return out
}

func (l *loader) testCase(n *yaml.Node) testCase {
	c := testCase{line: n.Line}
	var want string
	l.keys(n, "a case", map[string]func(*yaml.Node){
		"name": func(n *yaml.Node) { c.name = l.line(n, "name") },
		"call": func(n *yaml.Node) { c.facts = l.call(n) },
		"want": func(n *yaml.Node) { want = l.oneOf(n, "want", "allow", "review", denyWord) },
		"by":   func(n *yaml.Node) { c.by = l.text(n, "by") },
		"routes": func(n *yaml.Node) {
			c.routes = slices.Sorted(slices.Values(l.list(n, "routes")))
			if c.routes == nil {
				c.routes = []string{}
			}
		},
	})
	l.needs(n, "the case", "name", "call", "want")
	switch want {
	case "allow":
		c.want = Allow
	case "review":
		c.want = Review
	}
	if len(c.routes) > 0 && want != "" && c.want != Review {
		l.fail(n, "only a review has routes, and the case wants %s", want)
	}
	return c
}

// call reads a call as cases have it.
func (l *loader) call(n *yaml.Node) Facts {
	f := Facts{Call: action.Call{Args: json.RawMessage("{}")}}
	l.keys(n, "a call", map[string]func(*yaml.Node){
		"tool": func(n *yaml.Node) {
			server, tool, ok := strings.Cut(l.text(n, "tool"), "/")
			if !ok && n.Value != "" {
				l.fail(n, "a tool is written UPSTREAM/TOOL")
			}
			f.Call.Server, f.Call.Tool = server, tool
		},
		"args": func(n *yaml.Node) {
			var b bytes.Buffer
			if l.json(n, &b); json.Valid(b.Bytes()) {
				f.Call.Args = b.Bytes()
			}
		},
		"actor":    func(n *yaml.Node) { f.Call.Actor.ID = l.text(n, "actor") },
		"roles":    func(n *yaml.Node) { f.Call.Actor.Roles = l.list(n, "roles") },
		"session":  func(n *yaml.Node) { f.Call.Session = l.text(n, "session") },
		"workflow": func(n *yaml.Node) { f.Call.Workflow = l.text(n, "workflow") },
		"evidence": func(n *yaml.Node) { f.Evidence = l.list(n, "evidence") },
		"labels": func(n *yaml.Node) {
			f.Labels = map[string][]string{}
			l.pairs(n, "labels", true, func(k, v *yaml.Node) {
				if !action.IsPointer(k.Value) {
					l.fail(k, "%q is not a JSON pointer such as /to/0, or \"\" for the session", k.Value)
				}
				f.Labels[k.Value] = l.list(v, "labels of "+k.Value)
			})
		},
	})
	l.needs(n, "the call", "tool")
	return f
}

// json writes a node as JSON. Numbers stay as they are written.
func (l *loader) json(n *yaml.Node, b *bytes.Buffer) {
	switch n.Kind {
	case yaml.MappingNode:
		sep := byte('{')
		l.pairs(n, "args", true, func(k, v *yaml.Node) {
			b.WriteByte(sep)
			sep = ','
			quote(b, k.Value)
			b.WriteByte(':')
			l.json(v, b)
		})
		if sep == '{' {
			b.WriteByte(sep)
		}
		b.WriteByte('}')
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, c := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			l.json(c, b)
		}
		b.WriteByte(']')
	default:
		l.scalar(n, b)
	}
}

func (l *loader) scalar(n *yaml.Node, b *bytes.Buffer) {
	tag := n.ShortTag()
	switch {
	case isNumber(n):
		b.WriteString(n.Value)
	case tag == "!!str":
		quote(b, n.Value)
	case tag == "!!null" && (n.Value == "null" || n.Value == ""):
		b.WriteString("null")
	case tag == "!!bool" && (n.Value == "true" || n.Value == "false"):
		b.WriteString(n.Value)
	default:
		l.fail(n, "%s is not JSON; put it in quotes if it is a string", n.Value)
		b.WriteString("null")
	}
}

func quote(b *bytes.Buffer, s string) {
	q, err := json.Marshal(s)
	if err != nil { // of a string there is none
		q = []byte(`""`)
	}
	b.Write(q)
}

// ParseCall reads a call to judge: a JSON object with tool, and args, actor,
// roles, labels, session, workflow and evidence as the cases of a policy have
// them. name is the file's. The error is an *Error.
func ParseCall(name string, b []byte) (Facts, error) {
	l := &loader{}
	var f Facts
	if err := action.Check(b, action.Limits{}); err != nil {
		return f, &Error{Name: name, Problems: []Problem{{Text: err.Error()}}}
	}
	root := l.document(b)
	if root != nil {
		f = l.call(root)
	}
	if args, ok := action.Member(b, "args"); ok {
		f.Call.Args = args // as they are written
	}
	if len(l.problems) > 0 {
		return Facts{}, &Error{Name: name, Problems: l.problems}
	}
	return f, nil
}
