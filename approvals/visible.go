package approvals

import "unicode"

// Invisible tells whether a character of a stranger's text must not be shown as
// it is, because it can't be seen or changes how others are seen: controls (line
// breaks too), format and bidirectional characters, spaces other than the plain
// one, fillers and blanks, marks that strike out or enclose a letter, variation selectors, tags, private use, surrogates and
// unassigned codes. Whoever shows such a text shows the character's code in its
// place. The replacement character U+FFFD is visible: it already stands for
// something that was no text.
//
// All channels use this one table, so that a text is not plain on one and coded
// on another.
func Invisible(r rune) bool {
	switch r {
	case ' ':
		return false
	case '\u2800', '\ufffc', '\U0001d159': // an empty braille cell, an object that isn't there, a note without a head
		return true
	}
	if '\u0334' <= r && r <= '\u0338' || '\u20d0' <= r && r <= '\u20f0' || unicode.Is(unicode.Me, r) {
		return true // strikes a letter out, or stands around it
	}
	return !unicode.IsGraphic(r) ||
		unicode.In(r, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
