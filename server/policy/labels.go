package policy

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// Unknown is the label of a value that nobody labelled.
const Unknown = "unknown"

var (
	errPointer = errors.New("labels are asked for by what is not a JSON pointer")
	unlabelled = types.NewStringList(types.DefaultTypeAdapter, []string{Unknown})
	noLabels   = types.NewStringList(types.DefaultTypeAdapter, nil)
)

// labelled is labels(pointer) as conditions see it.
func (a *activation) labelled(pointer string) ref.Val {
	if !action.IsPointer(pointer) {
		return types.WrapErr(errPointer)
	}
	if pointer == "" {
		session := slices.Clone(a.facts.Labels[""])
		slices.Sort(session)
		return types.NewStringList(types.DefaultTypeAdapter, slices.Compact(session))
	}
	raw, known := a.args.follow(pointer)
	switch {
	case !known:
		return types.WrapErr(errAlias)
	case raw == nil:
		return noLabels
	case len(a.facts.Labels) == 0:
		return unlabelled
	}
	return types.NewStringList(types.DefaultTypeAdapter, labelsOf(a.facts.Labels, pointer, raw))
}

// labelsOf is the union of the labels of a value, of what it is a part of, and of
// all its parts; "unknown" is among them when a part of it has none.
func labelsOf(labels map[string][]string, pointer string, raw []byte) []string {
	set := map[string]bool{}
	for p := pointer; p != ""; p = p[:strings.LastIndexByte(p, '/')] {
		for _, l := range labels[p] {
			set[l] = true
		}
	}
	covered := len(set) > 0
	for p, ls := range labels {
		if strings.HasPrefix(p, pointer+"/") {
			for _, l := range ls {
				set[l] = true
			}
		}
	}
	if !covered && !labelledThroughout(labels, pointer, raw) {
		set[Unknown] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// labelledThroughout tells whether every part of a value has a label of its own,
// or is within one that has.
func labelledThroughout(labels map[string][]string, pointer string, raw []byte) bool {
	if len(labels[pointer]) > 0 {
		return true
	}
	deeper := false
	for p := range labels {
		deeper = deeper || strings.HasPrefix(p, pointer+"/")
	}
	parts, ok := split(nil, raw)
	if !deeper || !ok {
		return false
	}
	for i, s := range parts {
		name := strconv.Itoa(i)
		if s.name != nil {
			name = action.EscapePointer(string(s.name))
		}
		if !labelledThroughout(labels, pointer+"/"+name, s.value) {
			return false
		}
	}
	return true
}

// follow is the value at a pointer that begins with a slash; nil when there is
// none. known is false when there may be one.
func (o *object) follow(pointer string) (raw []byte, known bool) {
	first, rest, deeper := strings.Cut(pointer[1:], "/")
	raw, known = o.member(action.UnescapePointer(first))
	for deeper && raw != nil && known {
		first, rest, deeper = strings.Cut(rest, "/")
		raw, known = part(raw, action.UnescapePointer(first))
	}
	return raw, known
}

// part is a member of an object by name, or an element of an array by index.
func part(raw []byte, name string) (value []byte, known bool) {
	switch action.TypeOf(raw) {
	case "object":
		o := object{group: group{raw: raw}}
		return o.member(name)
	case "array":
		parts, _ := split(nil, raw)
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(parts) && strconv.Itoa(i) == name {
			return parts[i].value, true
		}
	}
	return nil, true
}
