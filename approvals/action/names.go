package action

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// foldKeys are two forms of a name under which no two siblings may meet. The
// first is compatibility normalisation with full case folding, which is what a
// person or a careful decoder takes for the same; the second is simple folding
// rune by rune, which is what encoding/json compares by ("ſ" is "s", "K" is "k").
func foldKeys(name string) (full, simple string) {
	if isASCII(name) {
		low := strings.ToLower(name)
		return low, low
	}
	full = norm.NFKC.String(cases.Fold().String(norm.NFKC.String(name)))
	simple = strings.Map(func(r rune) rune {
		least := r
		for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
			least = min(least, o)
		}
		if 'A' <= least && least <= 'Z' {
			least += 'a' - 'A'
		}
		return least
	}, name)
	return full, simple
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// siblings are the names of one object so far.
type siblings struct{ seen map[string]struct{} }

// clash adds name and tells whether it meets one that was there.
func (s *siblings) clash(name string, fold bool) bool {
	if s.seen == nil {
		s.seen = map[string]struct{}{}
	}
	a, b := name, name
	if fold {
		a, b = foldKeys(name)
	}
	_, metA := s.seen[a]
	_, metB := s.seen[b]
	s.seen[a], s.seen[b] = struct{}{}, struct{}{}
	return metA || metB
}

// invisibleIn tells whether a name holds a character that a person can't see or
// a decoder might drop.
func invisibleIn(name string) bool {
	for _, r := range name {
		if r < utf8.RuneSelf {
			if r < 0x20 || r == 0x7f {
				return true
			}
			continue
		}
		if unicode.In(r, unicode.C, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
			return true
		}
	}
	return false
}
