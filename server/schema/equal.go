package schema

import (
	"slices"
	"strconv"
	"strings"
)

// quoted appends a string so that no other string, and nothing else, looks like it.
func quoted(out []byte, s string) []byte {
	out = strconv.AppendInt(append(out, '"'), int64(len(s)), 10)
	return append(append(out, ':'), s...)
}

// ordered are the places of an object's members, by name.
func (v *value) ordered() []int {
	at := make([]int, len(v.names))
	for i := range at {
		at[i] = i
	}
	slices.SortFunc(at, func(a, b int) int { return strings.Compare(v.names[a], v.names[b]) })
	return at
}

// size is about how many bytes a value's form has: what it costs to compare it.
func (v *value) size() int {
	n := 2 + len(v.text)
	for i := range v.kids {
		n += v.kids[i].size()
	}
	for _, name := range v.names {
		n += len(name)
	}
	return n
}
