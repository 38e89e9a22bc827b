package action

import "strings"

// A JSON pointer (RFC 6901) names a place in the arguments: a step for each member
// or index, with a slash in front. In a step "~" is written as "~0" and "/" as "~1".
var (
	pointerEscapes   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescapes = strings.NewReplacer("~1", "/", "~0", "~")
	pointerBare      = strings.NewReplacer("~0", "", "~1", "")
)

// IsPointer tells whether p is a JSON pointer; "" is one, of the whole.
func IsPointer(p string) bool {
	return p == "" || p[0] == '/' && (!strings.Contains(p, "~") || !strings.Contains(pointerBare.Replace(p), "~"))
}

// EscapePointer writes a member's name as a step of a JSON pointer.
func EscapePointer(name string) string { return pointerEscapes.Replace(name) }

// UnescapePointer is the name that a step of a JSON pointer stands for.
func UnescapePointer(step string) string {
	if !strings.Contains(step, "~") {
		return step // nearly every one, and pointers are followed for each call
	}
	return pointerUnescapes.Replace(step)
}
