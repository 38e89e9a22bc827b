// Package redact makes what a person sees of a call. [Render] is the one function
// for it: cards, pages, operators' listings and digests of what was shown all
// come from its result, so no two of them can differ.
//
// Three things hold for what it makes. Secrets are masked by the names of their
// members, in any spelling and at any depth, by the policy's pointers, and by how
// they look, also as parts of a longer text and inside text that is itself JSON. No
// character is invisible or changes how others are read: such are shown by their
// code, as ⟦U+202E⟧, and so are the brackets ⟦ ⟧ ⟨ ⟩ themselves, which makes our
// own marks unforgeable. And nothing is cut silently: the text is the whole, or
// the view says what is missing.
//
// A masked value still counts as shown where the tool's schema declares it: its
// name, type, length and keyed digest are there, and a policy that must have it seen
// does not mask it. One that no schema declares could be anything under a secret's
// name, so the view is then incomplete; and so it is where a text can't be taken
// apart for sure. A mask in a text follows the alphabet of its kind: what a shell
// would run does not fit under one.
package redact

import "encoding/json"

// Rules are the policy's part in showing a call of one tool.
type Rules struct {
	Keys     []string // names that are masked beside the built-in ones
	Pointers []string // RFC 6901 pointers into the arguments that are masked
	Title    string   // template with {field}; empty when there is none

	// Schema is the tool's inputSchema. A masked value that it doesn't declare makes
	// the view incomplete; without one, every masked value does.
	Schema json.RawMessage
}
