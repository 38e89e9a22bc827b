package action

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// node is a JSON value that can be written in many ways.
type node struct {
	kind    byte // o object, a array, s string, l any other literal
	names   []string
	under   []*node
	text    string
	literal string
}

// grow makes a value at random. Names of one object differ by more than case.
func grow(r *rand.Rand, depth int) *node {
	kind := r.IntN(7)
	if depth == 0 {
		kind = 6
	} else if depth > 3 {
		kind = r.IntN(4)
	}
	switch kind {
	case 0, 1:
		return &node{kind: 's', text: []string{"", "a", "Ab", "é", "e\u0301", "😀", "\u2028", "x\n\"\\", "null", "1"}[r.IntN(10)]}
	case 2, 3:
		return &node{kind: 'l', literal: []string{"0", "-0", "1", "1.0", "10", "1e1", "0.1", "9007199254740993", "9007199254740992", "1e400", "true", "false", "null"}[r.IntN(13)]}
	case 4:
		n := &node{kind: 'a'}
		for range r.IntN(4) {
			n.under = append(n.under, grow(r, depth+1))
		}
		return n
	}
	n := &node{kind: 'o'}
	for _, name := range []string{"a", "b1", "10", "9", "ﾀ", "😀", "é", "long name", ""} {
		if r.IntN(3) == 0 {
			n.names = append(n.names, name)
			n.under = append(n.under, grow(r, depth+1))
		}
	}
	return n
}

// write is one way to write the value: order, blanks and escapes are chosen by r.
func (n *node) write(r *rand.Rand) string {
	blank := func() string { return []string{"", "", " ", "\n", "\t\r\n "}[r.IntN(5)] }
	switch n.kind {
	case 's':
		return written(r, n.text)
	case 'l':
		return n.literal
	case 'a':
		var items []string
		for _, x := range n.under {
			items = append(items, blank()+x.write(r)+blank())
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	var members []string
	for _, i := range r.Perm(len(n.names)) {
		members = append(members, blank()+written(r, n.names[i])+blank()+":"+blank()+n.under[i].write(r)+blank())
	}
	return "{" + strings.Join(members, ",") + "}"
}

func written(r *rand.Rand, s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(c))
		case c == '\n':
			b.WriteString(`\n`)
		case c < 0x10000 && r.IntN(3) == 0:
			fmt.Fprintf(&b, []string{`\u%04x`, `\u%04X`}[r.IntN(2)], c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// leaves are all nodes that hold no others, and the empty ones.
func (n *node) leaves(out []*node) []*node {
	if len(n.under) == 0 {
		return append(out, n)
	}
	for _, x := range n.under {
		out = x.leaves(out)
	}
	return out
}

// change makes one value another one, and says how.
func (n *node) change(r *rand.Rand) string {
	all := n.leaves(nil)
	x := all[r.IntN(len(all))]
	if len(n.names) > 0 && r.IntN(4) == 0 {
		switch r.IntN(3) {
		case 0:
			n.names[0] += "2"
			return "a name"
		case 1:
			n.names, n.under = n.names[1:], n.under[1:]
			return "a member less"
		}
		n.names, n.under = append(n.names, "new"), append(n.under, &node{kind: 'l', literal: "null"})
		return "a member more"
	}
	switch x.kind {
	case 's':
		x.text += []string{"x", " ", "\u0301"}[r.IntN(3)]
		return "a text"
	case 'l':
		before := x.literal
		for x.literal == before {
			x.literal = []string{"0", "-0", "1", "1.0", "9007199254740993", "9007199254740992", "true", "null", "1e400", "1e401"}[r.IntN(10)]
		}
		return before + " to " + x.literal
	case 'a':
		x.under = append(x.under, &node{kind: 'l', literal: "null"})
		return "an item"
	}
	x.names, x.under = append(x.names, "new"), append(x.under, &node{kind: 's'})
	return "a member"
}

func (n *node) clone() *node {
	c := *n
	c.names, c.under = slices.Clone(n.names), nil
	for _, x := range n.under {
		c.under = append(c.under, x.clone())
	}
	return &c
}

// Whatever is in a call: written in another way it has the same match key and,
// since the bytes are others, another envelope digest; with any value changed both
// are others. The canonical form is one, and its own.
func TestDigestsOfAnyCall(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	moved := 0
	for range 4000 {
		v := grow(r, 0)
		envelope := func(args string) *Envelope {
			if err := Check([]byte(args), Limits{}); err != nil {
				t.Fatalf("%s: %v", args, err)
			}
			return &Envelope{Call: Call{Server: "s", Tool: "t", Actor: Actor{ID: "ana"}, Args: json.RawMessage(args)}}
		}
		a, b := envelope(v.write(r)), envelope(v.write(r))
		if a.Match() != b.Match() {
			t.Fatalf("two writings of one value:\n%s\n%s", a.Call.Args, b.Call.Args)
		}
		if same := bytes.Equal(a.Call.Args, b.Call.Args); (a.Digest() == b.Digest()) != same {
			t.Fatalf("the envelope does not bind the bytes of\n%s\n%s", a.Call.Args, b.Call.Args)
		} else if !same {
			moved++
		}
		once, err := Canonical(a.Call.Args)
		if err != nil {
			t.Fatal(err)
		}
		other, _ := Canonical(b.Call.Args)
		again, err := Canonical(once)
		if err != nil || !bytes.Equal(once, again) || !bytes.Equal(once, other) || Check(once, Limits{}) != nil {
			t.Fatalf("%s, %s, %s: %v", once, other, again, err)
		}
		changed := v.clone()
		how := changed.change(r)
		c := envelope(changed.write(r))
		if c.Match() == a.Match() || c.Digest() == a.Digest() {
			t.Fatalf("%s changed nothing:\n%s\n%s", how, a.Call.Args, c.Call.Args)
		}
	}
	if moved < 2000 {
		t.Errorf("only %d were written in two ways", moved)
	}
}

// A change of any one byte of what is forwarded is another envelope.
func TestEveryByteIsBound(t *testing.T) {
	base := vectors(t)[1].envelope(t)
	want := base.Digest()
	for name, part := range map[string]*json.RawMessage{
		"args": &base.Call.Args, "meta": &base.Call.Meta, "extra": &base.Call.Extra, "id": &base.Call.RequestID,
	} {
		kept := *part
		for i := range kept {
			for bit := range 8 {
				*part = bytes.Clone(kept)
				(*part)[i] ^= 1 << bit
				if base.Digest() == want {
					t.Fatalf("bit %d of byte %d of %s is not bound", bit, i, name)
				}
			}
		}
		*part = kept
	}
	if base.Digest() != want {
		t.Fatal("the digest is not stable")
	}
}
