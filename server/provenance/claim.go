package provenance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// Bounds of a claim.
const (
	maxClaim      = 64 << 10 // bytes
	maxPointers   = 256
	maxPointer    = 1024 // bytes
	maxSteps      = 16   // of a pointer: each step reads what it leads into once more
	maxEvidence   = 32
	maxEvidenceID = 256 // bytes
)

// Claim is what a client says of a call: where the values of its arguments come
// from, and what was looked up before it.
type Claim struct {
	Labels   map[string][]string // by JSON pointer, never ""; lists sorted
	Evidence []string
}

// BadClaim says why a claim is refused. It names no value of the call and none of
// the claim.
type BadClaim struct{ Reason string }

func (e *BadClaim) Error() string { return "the claim of provenance " + e.Reason }

func bad(format string, args ...any) error { return &BadClaim{fmt.Sprintf(format, args...)} }

// ParseClaim reads a claim,
//
//	{"v": 1, "labels": {"/to": ["user"]}, "evidence": ["ticket 4417"]}
//
// of which v alone must be there. Every pointer must lead to a value of args,
// which must be what action.Parse accepted. What is not understood is an error,
// never skipped; the error is a [*BadClaim].
func ParseClaim(raw, args json.RawMessage) (Claim, error) {
	var c Claim
	if len(raw) > maxClaim {
		return c, bad("is longer than %d bytes", maxClaim)
	}
	if err := action.Check(raw, action.Limits{}); err != nil || action.TypeOf(raw) != "object" {
		return c, bad("is not a JSON object with distinct names")
	}
	version := false
	for name, value := range action.Fields(raw) {
		var err error
		switch name {
		case "v":
			if version = string(value) == "1"; !version {
				err = bad("has a v other than 1")
			}
		case "labels":
			c.Labels, err = parseLabels(value)
		case "evidence":
			c.Evidence, err = parseEvidence(value)
		default:
			err = bad("has a member that is none of v, labels and evidence")
		}
		if err != nil {
			return Claim{}, err
		}
	}
	if !version {
		return Claim{}, bad("has no v")
	}
	if !allExist(c.Labels, args) {
		return Claim{}, bad("labels something that is not among the arguments")
	}
	return c, nil
}

func parseLabels(raw json.RawMessage) (map[string][]string, error) {
	if action.TypeOf(raw) != "object" {
		return nil, bad("has labels that are not an object")
	}
	out := map[string][]string{}
	for pointer, value := range action.Fields(raw) {
		switch {
		case pointer == "":
			return nil, bad(`labels "", which is the session and not a client's to label`)
		case len(pointer) > maxPointer || !action.IsPointer(pointer):
			return nil, bad("labels something by what is not a JSON pointer such as /to/0")
		case strings.Count(pointer, "/") > maxSteps:
			return nil, bad("labels something more than %d levels deep", maxSteps)
		case len(out) == maxPointers:
			return nil, bad("labels more than %d values", maxPointers)
		case action.TypeOf(value) != "array":
			return nil, bad("has a value whose labels are not a list")
		}
		var labels []string
		for item := range action.Items(value) {
			l, ok := action.Text(item)
			if !ok || !slices.Contains(all, l) {
				return nil, bad("has a label that is none of %s", strings.Join(all, ", "))
			}
			if slices.Contains(labels, l) {
				return nil, bad("gives a value the same label twice")
			}
			labels = append(labels, l)
		}
		if len(labels) == 0 {
			return nil, bad("has a value with an empty list of labels")
		}
		slices.Sort(labels)
		out[pointer] = labels
	}
	return out, nil
}

func parseEvidence(raw json.RawMessage) ([]string, error) {
	if action.TypeOf(raw) != "array" {
		return nil, bad("has an evidence that is not a list")
	}
	var out []string
	for item := range action.Items(raw) {
		text, ok := action.Text(item)
		switch {
		case len(out) == maxEvidence:
			return nil, bad("has more than %d items of evidence", maxEvidence)
		case !ok || text == "" || len(text) > maxEvidenceID || strings.ContainsFunc(text, unicode.IsControl):
			return nil, bad("has an item of evidence that is not a string of 1 to %d bytes on one line", maxEvidenceID)
		}
		out = append(out, text)
	}
	return out, nil
}

// As is the claim as it counts. A trusted labeler is taken at its word. Of
// anybody else's claim only what lowers trust is left: user and system are no
// more than unknown, unknown stays on everything that is claimed, and evidence
// is none.
func (c Claim) As(trusted bool) Claim {
	if trusted {
		return c
	}
	return Claim{Labels: Doubt(c.Labels)}
}

// Doubt are labels as they count when whoever gave them is not trusted, or not any
// more. The session's are nobody's claim and stay. The argument stays as it is.
func Doubt(set map[string][]string) map[string][]string {
	var out map[string][]string
	for pointer, labels := range set {
		kept := []string{Unknown}
		for _, l := range labels {
			if l != User && l != System && l != Unknown {
				kept = append(kept, l)
			}
		}
		slices.Sort(kept)
		if pointer == "" {
			kept = labels
		}
		if out == nil {
			out = make(map[string][]string, len(set))
		}
		out[pointer] = kept
	}
	return out
}
