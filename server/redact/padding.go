package redact

// padding finds what pushes the rest of a text out of sight: many blanks, lines or
// same characters in a row. All of it is there, so it is no more than a warning.
type padding struct {
	last   rune
	same   int // of last, in a row
	breaks int // line breaks in a row, blanks between them or not

	spaces, lines, runs int // how many of each
}

const (
	padSpaces = 20  // that nobody needs to read a text
	padLines  = 8   // empty lines
	padSame   = 120 // longer than the rules that people draw between parts
)

func (p *padding) add(r rune) {
	if r != p.last {
		p.end()
		p.last = r
	}
	p.same++
	switch r {
	case '\n', '\r', '\f':
		p.breaks++
		if p.breaks == padLines {
			p.lines++
		}
	case ' ', '\t':
		if p.same == padSpaces {
			p.spaces++
		}
	default:
		p.breaks = 0
		if p.same == padSame {
			p.runs++
		}
	}
}

// end is the end of a text, or of a run.
func (p *padding) end() { p.last, p.same = -1, 0 }

func (p *padding) warnings() []string {
	var out []string
	for _, w := range []struct {
		n         int
		one, many string
	}{
		{p.spaces, "long run of spaces pushes", "long runs of spaces push"},
		{p.lines, "run of empty lines pushes", "runs of empty lines push"},
		{p.runs, "long run of one character pushes", "long runs of one character push"},
	} {
		if w.n > 0 {
			out = append(out, plural(w.n, w.one, w.many)+" what follows out of sight")
		}
	}
	return out
}
