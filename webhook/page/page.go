// Package page draws the decision page that a link leads to. It is plain HTML
// with its style inside and no script: it works in any mail client's browser, at
// phone width, in the dark, by keyboard and with a screen reader. It decides
// nothing and imports nothing of the project.
package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"strings"
	"time"
)

//go:embed page.html
var source string

//go:embed page.css
var css string

var tmpl = template.Must(template.New("page").Funcs(template.FuncMap{
	"style": func() template.CSS { return template.CSS(css) },
	"utc":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") },
	"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"until": Until,
}).Parse(source))

// Policy is the Content-Security-Policy of every page: nothing but its own style,
// and forms to where it came from.
var Policy = fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
	base64.StdEncoding.EncodeToString(func() []byte { s := sha256.Sum256([]byte(css)); return s[:] }()))

// The names of the form's fields, and the value of a ticked box.
const (
	FieldNonce    = "nonce"
	FieldDecision = "decision"
	FieldConfirm  = "confirm"
	FieldReason   = "reason"
	Confirmed     = "read"
)

// Approval is what the page shows. All text is escaped here; none of it may hold
// more than the View.
type Approval struct {
	Title, Who, Server, Tool, Tier string
	Why                            []string
	Deadline, Now                  time.Time
	Text                           string // the arguments as shown
	Masked                         []Mask
	Warnings, Missing              []string
	Needed                         []string // who else must agree, as sentences

	Form   *Form  // nil: nothing to answer
	Status string // a sentence about where the request stands, or why it can't be answered
	Notice string // a sentence about what was just sent, when it was not taken
}

// Mask is a value that is not shown.
type Mask struct {
	Pointer, Type string
	Len           int
	Digest        string // the beginning of it, keyed
}

// Form is the answer that the page offers.
type Form struct {
	Nonce      string
	MayApprove bool
	WhyNot     string // why Approve is missing
	Reason     string // as typed before
	Unticked   bool   // Approve was pressed without the box
}

// Render draws the page of an approval.
func Render(a Approval) ([]byte, error) { return render("approval", a) }

// Message draws a page that says one thing: a heading and sentences.
func Message(heading string, sentences ...string) ([]byte, error) {
	return render("message", struct {
		Heading   string
		Sentences []string
	}{heading, sentences})
}

func render(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := tmpl.ExecuteTemplate(&b, name, data); err != nil {
		return nil, fmt.Errorf("page: drawing %s: %w", name, err)
	}
	return b.Bytes(), nil
}

// Until says how long it is from now to t, in words: "in 14 minutes".
func Until(now, t time.Time) string {
	d := t.Sub(now)
	if d <= 0 {
		return "now over"
	}
	if d < time.Minute {
		return "in less than a minute"
	}
	var parts []string
	add := func(n int, unit string) {
		switch {
		case n == 1:
			parts = append(parts, "1 "+unit)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", n, unit))
		}
	}
	minutes := int(d / time.Minute)
	add(minutes/(24*60), "day")
	add(minutes/60%24, "hour")
	if minutes < 24*60 {
		add(minutes%60, "minute")
	}
	return "in " + strings.Join(parts, " ")
}
