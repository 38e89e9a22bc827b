// Package redact makes what a person sees of a call. [Render] is the one function
// for it: cards, pages, operators' listings and digests of what was shown all
// come from its result, so no two of them can differ.
//
// Three things hold for what it makes. Secrets are masked by the names of their
// members, in any spelling and at any depth, and by the policy's pointers. No
// character is invisible or changes how others are read: such are shown by their
// code, as ⟦U+202E⟧, and so are the brackets ⟦ ⟧ ⟨ ⟩ themselves, which makes our
// own marks unforgeable. And nothing is cut silently: the text is the whole, or
// the view says what is missing.
//
// A masked value still counts as shown: its name, type, length and keyed digest
// are there, and a policy that must have it seen does not mask it.
package redact

// Rules are the policy's part in showing a call of one tool.
type Rules struct {
	Keys     []string // names that are masked beside the built-in ones
	Pointers []string // RFC 6901 pointers into the arguments that are masked
	Title    string   // template with {field}; empty when there is none
}
