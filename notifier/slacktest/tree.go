package slacktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// decode reads one JSON value and keeps number literals.
func decode(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("more than one JSON value")
	}
	return nil
}

func str(v any) string { s, _ := v.(string); return s }

func textOf(v any) string {
	m, _ := v.(map[string]any)
	return str(m["text"])
}

// walk calls f for v and every object inside it, in document order where an
// order exists: arrays in order, members by name.
func walk(v any, f func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		f(v)
		for _, k := range sortedKeys(v) {
			walk(v[k], f)
		}
	case []any:
		for _, e := range v {
			walk(e, f)
		}
	}
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func richText(m map[string]any) string {
	var b strings.Builder
	els, _ := m["elements"].([]any)
	for _, e := range els {
		el, _ := e.(map[string]any)
		switch el["type"] {
		case "text":
			b.WriteString(str(el["text"]))
		case "link":
			b.WriteString(str(el["url"]))
		}
	}
	return b.String()
}

// chars is the length of a text by the stricter of the two meanings that
// Slack's word "characters" may have.
func chars(s string) int { return max(utf8.RuneCountInString(s), len(utf16.Encode([]rune(s)))) }
