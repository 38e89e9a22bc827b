package action

import "bytes"

// Alike tells whether two names are ones that Check does not take side by side
// in one object: they differ at most in case or in how their characters are
// written. Some decoder takes one for the other.
func Alike(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if ascii(a) && ascii(b) {
		return bytes.EqualFold(a, b)
	}
	fullA, simpleA := foldKeys(string(a))
	fullB, simpleB := foldKeys(string(b))
	return fullA == fullB || simpleA == simpleB || fullA == simpleB || simpleA == fullB
}

func ascii(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}
