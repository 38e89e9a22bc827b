package redact

import "strings"

// SecretName tells whether a name is one whose value is masked in a call.
func SecretName(name string) bool { return newNames(nil).secret(name, false) }

// Secret tells whether a text has a part that would be masked in a call, or can't
// be taken apart for sure.
func Secret(text string) bool {
	d := &drawing{names: newNames(nil)}
	d.aws = strings.Contains(text, "AKIA") || strings.Contains(text, "ASIA")
	found, c := d.secrets(text, 0)
	return c != certain || len(found) > 0
}
