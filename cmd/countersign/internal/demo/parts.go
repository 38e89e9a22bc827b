package demo

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
)

// Source is the demo's name among the callbacks: POST /callbacks/demo.
const Source = "demo"

// Link is a personal link as it was handed to its person, with the digest that
// a decision about this call has to carry.
type Link struct {
	Person   string
	URL      string
	Approval string
	Digest   string
	Deadline time.Time
}

// Parts are the addresses and secrets of a running gate.
type Parts struct {
	MCPURL         string // of the orders upstream alone: http://127.0.0.1:PORT/mcp/orders
	Token          string // of the agent; its requester is ana
	OtherToken     string // of another agent
	WebhookURL     string // http://127.0.0.1:PORT
	CallbackSecret string // of POST /callbacks/demo; whsec_…
	DeskFile       string
	LedgerDir      string
	Wait           time.Duration // that a person has to answer; 0 means Wait
	Links          <-chan Link   // as they are handed out; buffered, so that nobody waits for the story
	Out            io.Writer
}

// storyTime bounds a whole story: a person's time, and some for the rest.
func (p Parts) storyTime() time.Duration { return cmp.Or(p.Wait, Wait) + 3*time.Minute }

func (p Parts) say(format string, args ...any) { fmt.Fprintf(p.Out, format+"\n", args...) }

// ran is how often the desk has run a tool.
func (p Parts) ran(tool string) (int, error) {
	s, err := ReadState(p.DeskFile)
	return s.Ran[tool], err
}

// callbackURL is where decisions go.
func (p Parts) callbackURL() string {
	return strings.TrimRight(p.WebhookURL, "/") + "/callbacks/" + Source
}
