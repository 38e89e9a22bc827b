package redact

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Some characters can be seen and still be taken for others: the а of Cyrillic in
// pаypal, the slash ⁄ that is none. They are shown by their code where nothing
// speaks for them: a letter in a word that has Latin ones too, a word that consists
// of nothing but look-alikes in a text without any other word of its script, and
// the odd forms of plain characters. A text in one script stays as it is.

// alikeScripts have letters that look like Latin ones, and no reason to stand in
// one word with those.
var alikeScripts = []*unicode.RangeTable{
	unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee, unicode.Coptic, unicode.Lisu, unicode.Deseret, unicode.Osage,
	unicode.Tifinagh, unicode.Canadian_Aboriginal, unicode.Runic, unicode.Old_Italic, unicode.Gothic, unicode.Carian, unicode.Lycian,
	unicode.Lydian, unicode.Vai, unicode.Warang_Citi, unicode.Glagolitic,
}

// twins are letters of living scripts that are drawn like Latin ones.
const twins = "аАВсСеЕНіІјЈкКМоОрРѕЅТхХуУԁһԛԝӏӀүҮѵѴ" + "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧοιυνκρϲϳ" + "օոսհզ"

// signs are Greek letters that look like no others and stand for units and
// quantities: kΩ, Δt.
const signs = "ΔΘΛΞΠΣΦΨΩ\u2126δθλμξπσφψ"

// odd are characters drawn like a plain one that are not forms of it.
var odd = map[rune]rune{
	'∕': '/', '⁄': '/', '⧸': '/', '╱': '/', '∖': '\\', '⧵': '\\', '∣': '|', 'ǀ': '|', 'ǃ': '!', '꞉': ':', '∶': ':', 'ː': ':', '։': ':', '׃': ':',
	'‚': ',', 'ɑ': 'a', 'ɡ': 'g', 'ꓸ': '.', '﹒': '.', '。': '.', '٠': '.', '۰': '.',
}

// plainForm is the one ASCII character that r is an odd form of, or is drawn like.
func plainForm(r rune) (rune, bool) {
	if p, ok := odd[r]; ok {
		return p, true
	}
	switch {
	case r == 0x17f, r == 0x37e, r == 0x1fef, r == 0x2024,
		0x2100 <= r && r <= 0x217f,   // letterlike, Roman numerals
		0xfe50 <= r && r <= 0xfe6b,   // small forms
		0xff01 <= r && r <= 0xff5e,   // full width
		0x1d400 <= r && r <= 0x1d7ff: // mathematical
		var b [utf8.UTFMax]byte
		p := norm.NFKC.Bytes(b[:utf8.EncodeRune(b[:], r)])
		if len(p) == 1 {
			return rune(p[0]), true
		}
	}
	return 0, false
}

// lookalikes are the places of the characters in a text that are shown by their
// code, and how many of its words mix scripts.
func lookalikes(s string) (places []int, mixed int) {
	t := survey(s)
	if !t.suspect {
		return nil, 0
	}
	var w word
	for i, r := range s {
		if p, ok := plainForm(r); ok && r >= utf8.RuneSelf && !(t.cjk && (0xff01 <= r && r <= 0xff5e || r == '。')) && !(t.arabic && p == '.') {
			places = append(places, i)
			w.latin = w.latin || unicode.IsLetter(p)
			continue
		}
		switch {
		case unicode.Is(unicode.Latin, r):
			w.latin = true
		case '0' <= r && r <= '9':
			w.digit = true
		case r < utf8.RuneSelf:
			places, mixed = w.end(t, places, mixed)
		case strings.ContainsRune(signs, r):
			w.other = true
		case unicode.In(r, alikeScripts...):
			w.letters = append(w.letters, i)
			w.other = w.other || !strings.ContainsRune(twins, r)
		case unicode.Is(unicode.Nd, r):
			w.digits = append(w.digits, i)
		case unicode.IsLetter(r), unicode.Is(unicode.M, r), !seen(r):
		default:
			places, mixed = w.end(t, places, mixed)
		}
	}
	return w.end(t, places, mixed)
}

// text is what is known of a whole text before its words are looked at.
type text struct {
	suspect bool // there is something to look at
	cjk     bool // in which full width is usual
	arabic  bool // in which a zero is a dot
	script  bool // a word of an alike script that could not be taken for Latin
}

func survey(s string) (t text) {
	for _, r := range s {
		if r < utf8.RuneSelf {
			continue
		}
		t.suspect = true
		switch {
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo):
			t.cjk = true
		case unicode.Is(unicode.Arabic, r) && unicode.IsLetter(r):
			t.arabic = true
		case unicode.In(r, alikeScripts...) && !strings.ContainsRune(twins, r):
			t.script = true
		}
	}
	return t
}

// word is what was seen of one word so far.
type word struct {
	latin, digit bool
	other        bool  // a letter that can't be taken for a Latin one
	letters      []int // of alike scripts
	digits       []int // that are not ASCII
}

// end adds the places of a word to those before it, and makes w the next word.
func (w *word) end(t text, places []int, mixed int) ([]int, int) {
	switch {
	case len(w.letters) > 0 && w.latin:
		mixed++
		places = append(places, w.letters...)
	case len(w.letters) > 0 && !w.other && !t.script:
		mixed++
		places = append(places, w.letters...)
	}
	if w.latin || w.digit {
		places = append(places, w.digits...)
	}
	*w = word{letters: w.letters[:0], digits: w.digits[:0]}
	return places, mixed
}
