// Package redact makes what a person sees of a call. [Render] is the one function
// for it: cards, pages, operators' listings and digests of what was shown all
// come from its result, so no two of them can differ.
//
// Three things hold for what it makes. Secrets are masked by the names of their
// members, in any spelling and at any depth, by the policy's pointers, and by how
// they look: also as parts of a longer text, behind a name in it (PASSWORD=x,
// X-Api-Key: x, --token x), beside their name in an array or an object, in base64,
// and inside text that is itself JSON. No character is invisible, changes how
// others are seen or can be taken for another: such are shown by their code, as
// ⟦U+202E⟧, and so are the brackets ⟦ ⟧ ⟨ ⟩ themselves, which makes our own marks
// unforgeable. And nothing is cut silently: the text is the whole, or the view says
// what is missing.
//
// # When a masked value counts as shown
//
// A mask shows pointer, type, length and keyed digest, and hides the rest. People
// can agree to that only where somebody said that there is such a value: the
// policy, by a pointer in mask (a name in redact.keys says nothing of a place), or
// the tool's schema, which must declare every leaf of a masked object or list. Any
// other could be anything under a secret's name, so the view is then incomplete.
//
// Where a mask follows from something less sure, its value must be one plain word
// as well: behind a name in text, in JSON in text, beside its name. What a shell
// would run, a path or a URL does not fit under such a mask; with those the view is
// incomplete, and so it is where a text can't be taken apart for sure.
//
// Beside the arguments no schema speaks, and clients put ids under the names of
// secrets (a session's) into every call. There one plain word or a number is
// enough; with anything more the view is incomplete.
//
// # What is not found
//
// A secret that nothing tells: under no name, in no known form, cut into pieces or
// encoded otherwise than by base64, percent signs, entities or JSON's escapes. The
// policy can mask its place.
package redact

import "encoding/json"

// Rules are the policy's part in showing a call of one tool.
type Rules struct {
	Keys     []string // names that are masked beside the built-in ones
	Pointers []string // RFC 6901 pointers into the arguments that are masked
	Title    string   // template with {field}; empty when there is none

	// Schema is the tool's inputSchema. A masked value that neither it nor Pointers
	// declares makes the view incomplete.
	Schema json.RawMessage
}
