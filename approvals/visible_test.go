package approvals

import (
	"testing"
	"unicode"
)

// What can't be seen, and what turns other characters round, is never shown as
// it is; living text is.
func TestInvisible(t *testing.T) {
	for r, what := range map[rune]string{
		0: "NUL", '\t': "tab", '\n': "line feed", '\r': "carriage return", 0x1b: "escape", 0x7f: "delete", 0x85: "next line",
		0xa0: "no-break space", 0xad: "soft hyphen", 0x34f: "grapheme joiner", 0x61c: "arabic letter mark",
		0x115f: "hangul filler", 0x1160: "hangul vowel filler", 0x17b4: "khmer vowel", 0x17b5: "khmer vowel", 0x180e: "mongolian separator",
		0x2003: "em space", 0x200b: "zero width space", 0x200d: "joiner", 0x200e: "mark", 0x2028: "line separator", 0x2029: "paragraph separator",
		0x202a: "embedding", 0x202e: "override", 0x2060: "word joiner", 0x2066: "isolate", 0x2069: "end of isolate", 0x2800: "empty braille cell",
		0x3000: "wide space", 0x3164: "filler", 0xd800: "surrogate", 0xe000: "private use", 0xfe0f: "variation selector", 0xfeff: "byte order mark",
		0xffa0: "narrow filler", 0xfff9: "annotation", 0xfffc: "object", 0xffff: "no character", 0x378: "unassigned",
		0xe0001: "language tag", 0xe0041: "tag letter", 0xe0100: "variation selector", 0x10ffff: "no character",
	} {
		if !Invisible(r) {
			t.Errorf("U+%04X (%s) is taken for visible", r, what)
		}
	}
	for _, r := range " aZ09~é\u0301ßжあ漢ا✓🎉€⟦⟨\ufffd" {
		if Invisible(r) {
			t.Errorf("U+%04X is taken for invisible", r)
		}
	}
	// None of the whole classes has a hole.
	for _, table := range []*unicode.RangeTable{unicode.Bidi_Control, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point, unicode.Noncharacter_Code_Point} {
		for r := rune(0); r <= unicode.MaxRune; r++ {
			if unicode.Is(table, r) && !Invisible(r) {
				t.Fatalf("U+%04X is taken for visible", r)
			}
		}
	}
}
