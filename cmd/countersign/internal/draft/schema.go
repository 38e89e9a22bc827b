package draft

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/policy"
)

// argument is one argument of a tool, as its schema declares it.
type argument struct {
	name     string
	required bool
	scalar   bool
	rule     string   // what stands between the braces; empty when nothing is safe to say
	example  string   // JSON that meets the rule
	hints    []string // for a person, beside the rule
}

// arguments derives rules from a tool's inputSchema: what it says of types,
// lengths, bounds and values. Every rule is tried before it is used, so a schema
// can't make a policy that does not load or that refuses the schema's own values.
func arguments(raw json.RawMessage) []argument {
	schema, _ := action.Member(raw, "inputSchema")
	properties, _ := action.Member(schema, "properties")
	required := texts(schema, "required")
	var names []string
	for name := range action.Fields(properties) {
		names = append(names, name)
	}
	var out []argument
	for name, property := range action.Fields(properties) {
		alike := slices.ContainsFunc(names, func(o string) bool { return o != name && action.Alike([]byte(o), []byte(name)) })
		if len(out) == maxArgs || name == "" || len(name) > maxName || alike || action.Check([]byte("{"+quote(name)+":0}"), action.Limits{}) != nil {
			continue
		}
		out = append(out, argumentOf(name, property, slices.Contains(required, name)))
	}
	return out
}

func argumentOf(name string, property json.RawMessage, required bool) argument {
	a := argument{name: name, required: required, example: `""`}
	a.hints = hintsFor(name, property)
	parts, example, scalar := ruleOf(property, 0)
	a.scalar = scalar
	if len(parts) > 0 {
		a.example = example
	}
	if required {
		parts = append(parts, "required: true")
	}
	rule := strings.Join(parts, ", ")
	if !loads(name, rule, a.example) {
		// What is required at least, without what the schema says of it.
		rule, a.example = "required: true", `""`
		if a.hints = append(a.hints, "what its schema says of it can't be a rule"); !required {
			rule = ""
		}
	}
	a.rule = rule
	return a
}

// loads tells whether a rule is one, and lets its example pass.
func loads(name, rule, example string) bool {
	if rule == "" {
		return true
	}
	set, err := policy.Parse("rule", []byte("version: 2\ntools: {x/y: {tier: read, args: {"+quote(name)+": {"+rule+"}}}}\n"+
		"cases: [{name: it, call: {tool: x/y, args: {"+quote(name)+": "+example+"}}, want: allow}]"))
	return err == nil && len(set.Test()[0].Problems) == 0
}

// ruleOf is a schema as a rule, and a value that meets it.
func ruleOf(schema json.RawMessage, depth int) (parts []string, example string, scalar bool) {
	kind := text(schema, "type")
	if values, ok := enum(schema); ok {
		return []string{"one_of: [" + strings.Join(values, ", ") + "]"}, values[0], true
	}
	switch kind {
	case "string":
		parts = append(parts, "type: string")
		least, most := size(schema, "minLength"), size(schema, "maxLength")
		parts = append(parts, pair("min_len", least)...)
		parts = append(parts, pair("max_len", most)...)
		return parts, textOf(least), true
	case "number", "integer":
		parts = append(parts, "type: "+kind)
		example = "1"
		least, most := number(schema, "minimum"), number(schema, "maximum")
		parts = append(parts, pair("min", least)...)
		parts = append(parts, pair("max", most)...)
		switch {
		case least != "":
			example = least
		case most != "":
			example = most
		}
		return parts, example, true
	case "boolean":
		return []string{"type: boolean"}, "true", true
	case "object":
		return []string{"type: object"}, "{}", false
	case "array":
		parts = append(parts, "type: array")
		items, _ := action.Member(schema, "items")
		each, item, _ := []string(nil), "", false
		if depth < 3 {
			each, item, _ = ruleOf(items, depth+1)
		}
		least, most := size(schema, "minItems"), size(schema, "maxItems")
		parts = append(parts, pair("min_items", least)...)
		parts = append(parts, pair("max_items", most)...)
		if len(each) > 0 {
			parts = append(parts, "items: {"+strings.Join(each, ", ")+"}")
			return parts, "[" + item + "]", false
		}
		return parts, "[]", false
	}
	return nil, "", false
}

func pair(key, value string) []string {
	if value == "" {
		return nil
	}
	return []string{key + ": " + value}
}

// enum are the values that may be, when a policy can say them all.
func enum(schema json.RawMessage) ([]string, bool) {
	list, ok := action.Member(schema, "enum")
	if !ok || action.TypeOf(list) != "array" {
		return nil, false
	}
	var out []string
	for v := range action.Items(list) {
		one := string(v)
		if s, ok := action.Text(v); ok {
			one = quote(s)
		}
		if kind := action.TypeOf(v); kind == "null" || kind == "array" || kind == "object" || len(one) > maxQuote || len(out) == maxValues {
			return nil, false
		}
		out = append(out, one)
	}
	return out, len(out) > 0
}

// hintsFor are what a person may want to say of an argument.
func hintsFor(name string, property json.RawMessage) []string {
	var out []string
	kind := text(property, "type")
	list := kind == "array"
	words := wordsOf(name)
	among := func(list ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(list, w) })
	}
	under := func(rule string) string {
		if list {
			return "items: {" + rule + "}"
		}
		return rule
	}
	switch {
	case kind != "string" && !list:
	case among("path", "paths", "file", "files", "filename", "filepath", "dir", "directory", "folder", "cwd", "root"):
		out = append(out, "if it is a path, keep it in one place: "+under("within: /SOME/DIRECTORY"))
	case among("url", "urls", "uri", "uris", "endpoint", "webhook", "href", "link", "host"):
		out = append(out, "if it is a URL, say where it may lead: "+under("hosts: [api.example.com]"))
	case among("to", "cc", "bcc", "recipient", "recipients", "email", "emails"):
		out = append(out, "if it is an address, say whose: "+under("pattern: '[^@,;\\s]+@example[.]com'"))
	}
	if p := text(property, "pattern"); p != "" {
		out = append(out, "the schema's pattern, which is another dialect and may be found anywhere: "+quoted(p))
	}
	if types, ok := action.Member(property, "type"); ok && action.TypeOf(types) == "array" {
		out = append(out, "it may have several types: "+quoted(string(types)))
	}
	return out
}

// example are arguments that meet the rules.
func example(args []argument) string {
	var out []string
	for _, a := range args {
		if a.required {
			out = append(out, quote(a.name)+": "+a.example)
		}
	}
	return "{" + strings.Join(out, ", ") + "}"
}

func firstRequired(args []argument) *argument {
	for i := range args {
		if args[i].required {
			return &args[i]
		}
	}
	return nil
}

func text(object json.RawMessage, name string) string {
	v, _ := action.Member(object, name)
	s, _ := action.Text(v)
	return s
}

func texts(object json.RawMessage, name string) []string {
	var out []string
	list, _ := action.Member(object, name)
	for v := range action.Items(list) {
		if s, ok := action.Text(v); ok {
			out = append(out, s)
		}
	}
	return out
}

// number is a number's literal; empty when there is none.
func number(object json.RawMessage, name string) string {
	v, ok := action.Member(object, name)
	if !ok || action.TypeOf(v) != "number" || len(v) > 30 {
		return ""
	}
	return string(v)
}

// size is a plain whole number that a length can be.
func size(object json.RawMessage, name string) string {
	n := number(object, name)
	if n == "" || len(n) > 9 || strings.Trim(n, "0123456789") != "" {
		return ""
	}
	return n
}

// textOf is a text of a length that an example may have.
func textOf(least string) string {
	n := 1
	if least != "" {
		_ = json.Unmarshal([]byte(least), &n) // digits only
	}
	if n > 1000 {
		return `""`
	}
	return quote(strings.Repeat("x", n))
}
