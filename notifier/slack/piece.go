package slack

import (
	"strings"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign-mcp/countersign/approvals"
)

// piece is a part of a sentence on a card: our own words, a stranger's words, a
// person, or a moment. It can be drawn as rich text and as plain text.
type piece struct {
	own    string // our words
	words  string // a stranger's, already fit for a line
	bold   bool
	person string // id of a person or an actor
	group  string // Slack user group, "S…"
	at     time.Time
}

type sentence []piece

func say(text string) piece                { return piece{own: text} }
func strong(text string) piece             { return piece{own: text, bold: true} }
func quote(text string) piece              { return piece{words: text} }
func who(person string) piece              { return piece{person: person} }
func when(at time.Time) piece              { return piece{at: at} }
func (s sentence) and(p ...piece) sentence { return append(s, p...) }

const (
	dateFormat = "{date_short_pretty} {time}" // in the reader's zone
	utcFormat  = "2006-01-02 15:04 UTC"
)

// pen draws sentences for one message.
type pen struct {
	roster   *approvals.Roster
	mentions bool // false: people and groups by name only
}

// elements draws a sentence as rich text.
func (p pen) elements(s sentence) []slack.RichTextSectionElement {
	var out []slack.RichTextSectionElement
	for _, x := range s {
		switch {
		case x.person != "":
			out = append(out, p.personElement(x.person))
		case x.group != "" && p.mentions && groupID.MatchString(x.group):
			out = append(out, slack.NewRichTextSectionUserGroupElement(x.group))
		case x.group != "":
			out = append(out, text("@"+x.group, false))
		case !x.at.IsZero():
			fallback := x.at.UTC().Format(utcFormat)
			out = append(out, slack.NewRichTextSectionDateElement(x.at.Unix(), dateFormat, nil, &fallback))
		case x.own+x.words != "":
			out = append(out, text(x.own+x.words, x.bold))
		}
	}
	return out
}

func (p pen) personElement(id string) slack.RichTextSectionElement {
	if user := p.slackUser(id); user != "" && p.mentions {
		return slack.NewRichTextSectionUserElement(user, nil)
	}
	name, _ := line(id, mostName)
	return text(name, false)
}

// slackUser is a person's Slack id by the configuration.
func (p pen) slackUser(id string) string {
	if p.roster == nil {
		return ""
	}
	x, _ := p.roster.Person(id)
	if !userID.MatchString(x.Slack) {
		return ""
	}
	return x.Slack
}

// plain draws a sentence as text without markup.
func (p pen) plain(s sentence) string {
	var b strings.Builder
	for _, x := range s {
		switch {
		case x.person != "":
			name, _ := line(x.person, mostName)
			b.WriteString(name)
		case x.group != "":
			b.WriteString("@" + x.group)
		case !x.at.IsZero():
			b.WriteString(x.at.UTC().Format(utcFormat))
		default:
			b.WriteString(x.own + x.words)
		}
	}
	return b.String()
}

func text(s string, bold bool) *slack.RichTextSectionTextElement {
	if s == "" {
		s = " " // an empty text is refused
	}
	if !bold {
		return slack.NewRichTextSectionTextElement(s, nil)
	}
	return slack.NewRichTextSectionTextElement(s, &slack.RichTextSectionTextStyle{Bold: true})
}

// people lists persons in a sentence.
func people(ids []string) sentence {
	var out sentence
	for i, id := range ids {
		switch {
		case i > 0 && i == len(ids)-1:
			out = append(out, say(" and "))
		case i > 0:
			out = append(out, say(", "))
		}
		out = append(out, who(id))
	}
	return out
}
