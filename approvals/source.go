package approvals

import "regexp"

// SourcePattern is what the name of a system that decisions come from looks like:
// a key under tickets, the NAME of a "ticket:NAME" channel and of
// /callbacks/NAME. It is not anchored.
const SourcePattern = `[a-z0-9][a-z0-9-]{0,63}`

var source = regexp.MustCompile(`^` + SourcePattern + `$`)

// IsSource tells whether s can be such a name.
func IsSource(s string) bool { return source.MatchString(s) }
