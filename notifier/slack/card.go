package slack

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/notifier"
)

// Bounds of a card, in bytes on the wire.
const (
	maxBlocks  = 12_000 // Slack refuses somewhat above 13,000
	maxElement = 2_500  // of one preformatted element
	mostShown  = 2_000  // of arguments that do not fit whole

	mostTitle  = 150
	mostPush   = 120 // of a title in the push text
	mostName   = 100
	mostTool   = 200
	mostRule   = 160
	mostReason = 500
	mostLines  = 4
	mostPeople = 20
)

// level is how much of a card is drawn. The higher ones are for a card that
// Slack refused.
type level int

const (
	full    level = iota
	unnamed       // nobody is mentioned: an id of the configuration may be wrong
	minimal       // nothing of a stranger's
	levels  int   = iota
)

// card is a message as it is sent.
type card struct {
	text   string
	blocks []slack.Block
}

// card draws a message from the record.
func (s *Slack) card(m notifier.Message, lv level) card {
	d := &drawing{
		t: m.Ticket, channel: m.Channel, ring: s.cfg.Ring, nonce: s.nonce,
		pen: pen{roster: s.cfg.Roster(), mentions: lv == full},
	}
	if lv == minimal {
		return d.minimal()
	}
	return d.card()
}

// drawing is the work on one card.
type drawing struct {
	pen
	t       approvals.Ticket
	channel string
	ring    *keys.Ring
	nonce   func() string
}

func (d *drawing) card() card {
	c := card{text: d.push()}
	head, whole := d.facts()
	whole = whole && d.t.View.Complete()
	args := visible(d.t.View.Text, true)
	if c.blocks = d.blocks(head, args, args, whole); size(c.blocks) <= maxBlocks {
		return c
	}
	for most := mostShown; most > 0; most /= 2 {
		if c.blocks = d.blocks(head, prefix(args, most), args, false); size(c.blocks) <= maxBlocks {
			return c
		}
	}
	return d.minimal()
}

// blocks puts a card together. shown is the part of args that is on it; whole
// says that the card shows all that would run.
func (d *drawing) blocks(head []sentence, shown, args string, whole bool) []slack.Block {
	title, _ := line(d.title(), mostTitle)
	out := []slack.Block{
		slack.NewHeaderBlock(plainText(title), slack.HeaderBlockOptionBlockID(d.id("title"))),
	}
	if shown != "" {
		head = append(slices.Clip(head), sentence{strong("Arguments")})
	}
	rich := []slack.RichTextElement{d.lines(head)}
	for _, p := range pieces(shown, maxElement) {
		rich = append(rich, &slack.RichTextPreformatted{
			Type: slack.RTEPreformatted, Elements: []slack.RichTextSectionElement{text(p, false)},
		})
	}
	if below := d.remarks(shown, args, whole); len(below) > 0 {
		rich = append(rich, d.lines(below))
	}
	out = append(out, slack.NewRichTextBlock(d.id("facts"), rich...))
	if d.t.State == approvals.Pending {
		out = append(out, d.buttons(whole))
	}
	return append(out, d.reference())
}

// lines draws each sentence on a line of its own. They are one section: sections
// that follow each other are not sure to begin a new line in every client.
func (d *drawing) lines(sentences []sentence) *slack.RichTextSection {
	var out []slack.RichTextSectionElement
	for i, s := range sentences {
		if i > 0 {
			out = append(out, text("\n", false))
		}
		out = append(out, d.elements(s)...)
	}
	return slack.NewRichTextSection(out...)
}

// title is what the approval is called: the rendered title, or the tool with its
// first arguments.
func (d *drawing) title() string {
	if strings.TrimSpace(d.t.Title) != "" {
		return d.t.Title
	}
	return strings.TrimSpace(d.t.Tool + " " + d.t.View.Summary)
}

// facts are the lines above the arguments. whole is false when a line that says
// what would run had to be cut.
func (d *drawing) facts() (out []sentence, whole bool) {
	t := d.t
	if t.State == approvals.Pending {
		if s := d.asked(); len(s) > 0 {
			out = append(out, s)
		}
		out = append(out, sentence{strong("Until: "), when(t.Deadline)})
		out = append(out, progress(t)...)
	} else {
		out = append(out, outcome(t)...)
	}
	out = append(out, d.requester())
	server, ok := line(t.Server, mostName)
	tool, also := line(t.Tool, mostTool)
	tier, _ := line(t.Tier, mostName)
	out = append(out,
		sentence{strong("Server: "), quote(server)},
		sentence{strong("Tool: "), quote(tool)},
		sentence{strong("Tier: "), quote(tier)})
	return append(out, listed("Why: ", t.Rules)...), ok && also
}

func (d *drawing) requester() sentence {
	actor, _ := line(d.t.Actor, mostName)
	s := sentence{strong("Asked by: "), quote(actor)}
	if r := d.t.Requester; r != "" && r != d.t.Actor {
		r, _ = line(r, mostName)
		s = s.and(say(" ("), quote(r), say(")"))
	}
	return s
}

// asked mentions those who can decide, as the configuration lists them.
func (d *drawing) asked() sentence {
	s := sentence{strong("For: ")}
	seen := map[string]bool{}
	add := func(key string, p piece) {
		if seen[key] || len(seen) > mostPeople {
			return
		}
		if seen[key] = true; len(seen) > mostPeople {
			p = say("and more")
		}
		if len(seen) > 1 {
			s = append(s, say(" "))
		}
		s = append(s, p)
	}
	for _, r := range d.t.Requirements {
		for _, a := range r.Approvers {
			d.approver(a, add)
		}
	}
	if len(seen) == 0 {
		return nil
	}
	return s
}

func (d *drawing) approver(a string, add func(string, piece)) {
	if g, ok := strings.CutPrefix(a, "slack-group:"); ok {
		add(a, piece{group: g})
		return
	}
	name, ok := strings.CutPrefix(a, "group:")
	if !ok {
		add(a, who(a))
		return
	}
	members, known := d.roster.Members(name)
	if !known {
		name, _ = line(a, mostName)
		add(a, quote(name))
	}
	for _, m := range members {
		if !strings.HasPrefix(m, "group:") {
			d.approver(m, add)
		}
	}
}

// remarks are the lines below the arguments.
func (d *drawing) remarks(shown, args string, whole bool) []sentence {
	var out []sentence
	v := d.t.View
	if len(shown) < len(args) {
		out = append(out, sentence{strong("Not all of it is shown: "), say(fmt.Sprintf("%d of %d bytes.", len(shown), len(args)))})
	}
	out = append(out, listed("Missing: ", v.Missing)...)
	for i, m := range v.Masked {
		if i == mostLines {
			out = append(out, sentence{say(fmt.Sprintf("and %d more masked", len(v.Masked)-i))})
			break
		}
		pointer, _ := line(m.Pointer, mostName)
		kind, _ := line(m.Type, 20)
		what := fmt.Sprintf("%s, %d bytes", kind, m.Len)
		if digest, _ := line(m.Short(), mostName); digest != "" {
			what += ", digest " + digest
		}
		out = append(out, sentence{strong("Masked: "), quote(pointer), say(" (" + what + ")")})
	}
	out = append(out, listed("Note: ", v.Warnings)...)
	if d.t.State == approvals.Pending && !whole {
		out = append(out, sentence{strong("It can't be allowed from here, since this is not the whole. "), say(d.elsewhere())})
	}
	return out
}

// elsewhere says where what a card can't show whole is answered. What no view
// shows whole is on no terminal either.
func (d *drawing) elsewhere() string {
	show, approve := "countersign approvals show "+d.ref(), "countersign approvals approve "+d.ref()
	if !d.t.View.Complete() {
		return "Nothing shows all of it. See what there is with: " + show + ". It can only be approved unseen, with: " + approve
	}
	return "See all of it with: " + show + " and then: " + approve
}

func listed(label string, words []string) []sentence {
	var out []sentence
	for i, w := range words {
		if i == mostLines {
			return append(out, sentence{say(fmt.Sprintf("and %d more", len(words)-i))})
		}
		w, _ = line(w, mostRule)
		out = append(out, sentence{strong(label), quote(w)})
	}
	return out
}

// buttons are the two ways to answer. What is not shown whole can be denied only.
func (d *drawing) buttons(whole bool) slack.Block {
	deny := d.button(ActionDeny, "Deny", slack.StyleDanger, approvals.Deny)
	if !whole {
		return slack.NewActionBlock(d.id("answer"), deny)
	}
	return slack.NewActionBlock(d.id("answer"), d.button(ActionApprove, "Approve", slack.StylePrimary, approvals.Approve), deny)
}

func (d *drawing) button(action, label string, style slack.Style, v approvals.Verdict) *slack.ButtonBlockElement {
	value := d.ring.Token(keys.Button, "v1", d.t.ID, d.channel, v.String(), d.nonce())
	b := slack.NewButtonBlockElement(action, value, plainText(label))
	b.Style = style
	return b
}

func (d *drawing) reference() slack.Block {
	bound, _ := line(d.t.Bound, mostName)
	return slack.NewContextBlock(d.id("ref"), plainText(strings.TrimSpace("Approval "+d.ref()+"  "+bound)))
}

// minimal is a card that Slack has no reason to refuse. It can't show what would
// run, so it can be denied only.
func (d *drawing) minimal() card {
	rich := []sentence{{strong(headline(d.t) + ".")}}
	if d.t.State == approvals.Pending {
		rich = append(rich, sentence{say("Until: "), when(d.t.Deadline)})
	}
	note := "Slack did not take the full card. "
	switch d.t.State {
	case approvals.Pending:
		note += d.elsewhere()
	case approvals.Unknown:
		note += "See it with: countersign approvals show " + d.ref() + " and close it with: countersign approvals resolve " + d.ref()
	default:
		note += "See it with: countersign approvals show " + d.ref()
	}
	rich = append(rich, sentence{say(note)})
	c := card{
		text:   "Countersign: " + headline(d.t) + ". Approval " + escape(d.ref()),
		blocks: []slack.Block{slack.NewRichTextBlock(d.id("facts"), d.lines(rich))},
	}
	if d.t.State == approvals.Pending {
		c.blocks = append(c.blocks, d.buttons(false))
	}
	return c
}

// push is the message's text: what a phone shows on its lock screen and what a
// screen reader reads. Its first line says what is asked, by whom, until when.
func (d *drawing) push() string {
	title, _ := line(d.title(), mostPush)
	actor, _ := line(d.t.Actor, mostName)
	server, _ := line(d.t.Server, mostName)
	tool, _ := line(d.t.Tool, mostTool)
	first := headline(d.t) + ": " + title
	if d.t.State == approvals.Pending {
		first = title + ": " + actor + " asks, until " + clock(d.t.Deadline, d.t.CreatedAt)
	}
	lines := []string{first, "Tool " + tool + " on " + server + ", asked by " + actor}
	if d.t.State == approvals.Pending {
		lines = append(lines, "Until "+d.t.Deadline.UTC().Format(utcFormat))
	}
	for _, s := range outcome(d.t) {
		lines = append(lines, d.plain(s))
	}
	lines = append(lines, "Approval "+d.ref())
	return escape(strings.Join(lines, "\n"))
}

// clock is a time of day, with the date when it is not the day of the request.
func clock(at, asked time.Time) string {
	at, asked = at.UTC(), asked.UTC()
	if at.Sub(asked) < 12*time.Hour || at.Format(time.DateOnly) == asked.Format(time.DateOnly) {
		return at.Format("15:04 UTC")
	}
	return at.Format(utcFormat)
}

// ref is the approval's id. It is ours, but it is treated as anybody's.
func (d *drawing) ref() string {
	id, _ := line(d.t.ID, mostName)
	return id
}

// id makes a block id that no other version of the message has: clients tell
// blocks apart by it.
func (d *drawing) id(part string) string {
	return fmt.Sprintf("countersign:%s:%d:%s", part, d.t.Rev, d.nonce())
}

func plainText(s string) *slack.TextBlockObject {
	if s == "" {
		s = " "
	}
	return slack.NewTextBlockObject(slack.PlainTextType, s, false, false)
}
