// Package tally counts what a policy came to: it reads ledger records one by one
// and keeps numbers, no records. What it counts are calls, each once, under what
// became of its decision; a call that joined one that waits already asked nobody
// again, and one that could not be parked asked nobody at all.
package tally

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// Counts are calls by what was decided.
type Counts struct {
	Allowed     int `json:"allowed"`      // ran, and no one had to agree
	WouldAsk    int `json:"would_ask"`    // observed: ran, and would have been asked for
	WouldRefuse int `json:"would_refuse"` // observed: ran, and would have been refused before anybody was asked
	Asked       int `json:"asked"`        // parked, with a message of its own
	Joined      int `json:"joined"`       // the same call again, while it waited or its end was remembered
	Refused     int `json:"refused"`      // by the policy, a limit, or because something was missing
}

// Calls is how many there were.
func (c Counts) Calls() int {
	return c.Allowed + c.WouldAsk + c.WouldRefuse + c.Asked + c.Joined + c.Refused
}

// Questions is what people were, or would have been, asked.
func (c Counts) Questions() int { return c.WouldAsk + c.Asked }

// kind is one of the counts.
type kind func(*Counts) *int

func allowed(c *Counts) *int     { return &c.Allowed }
func wouldAsk(c *Counts) *int    { return &c.WouldAsk }
func wouldRefuse(c *Counts) *int { return &c.WouldRefuse }
func asked(c *Counts) *int       { return &c.Asked }
func joined(c *Counts) *int      { return &c.Joined }
func refused(c *Counts) *int     { return &c.Refused }

// Row is the counts of one tool, actor, hour, rule or route.
type Row struct {
	Name string `json:"name"`
	Counts
}

// Reason is why calls were refused, or would have been.
type Reason struct {
	Reason   string `json:"reason"`
	Calls    int    `json:"calls"`
	Observed int    `json:"observed"` // of these, how many ran because nobody is asked yet
}

// Watch is an observation that a policy of the ledger had.
type Watch struct {
	Upstreams []string  `json:"upstreams"`
	Until     time.Time `json:"until"`
}

// Span is the time that is counted: from From on and before To. Zero values have
// no bound.
type Span struct{ From, To time.Time }

func (s Span) holds(t time.Time) bool {
	return (s.From.IsZero() || !t.Before(s.From)) && (s.To.IsZero() || t.Before(s.To))
}

// maxNames is how many different names are counted each for itself. Callers choose
// names: those of tools that don't exist are on the ledger, too.
const maxNames = 10_000

// others are the names beyond that, together.
const others = "(others)"

// Tally counts. It is for one goroutine. Its memory grows with the reviewed calls of
// the time that is counted.
type Tally struct {
	span Span
	zone *time.Location

	total    Counts
	tools    map[string]*Counts
	people   map[string]*Counts // an actor behind whom nobody is known, under its own name
	actors   map[string]*Counts
	hours    [24]Counts
	peaks    map[time.Time]int // questions in each hour of the calendar
	rules    map[string]*Counts
	routes   map[string]*Counts
	reasons  map[string]*Reason
	policies map[string]bool
	watches  []Watch
	first    time.Time
	last     time.Time

	open map[string]ledger.Record // reviewed calls by operation, until it is known whether they asked
}

// New makes a Tally of a span of time whose hours are those of zone.
func New(span Span, zone *time.Location) *Tally {
	return &Tally{
		span: span, zone: zone,
		tools: map[string]*Counts{}, people: map[string]*Counts{}, actors: map[string]*Counts{}, peaks: map[time.Time]int{},
		rules: map[string]*Counts{}, routes: map[string]*Counts{}, reasons: map[string]*Reason{},
		policies: map[string]bool{}, open: map[string]ledger.Record{},
	}
}

// Add counts one record. Those of one file are given in their order.
func (t *Tally) Add(r ledger.Record) {
	switch r.Event {
	case ledger.PolicyLoaded:
		if t.span.holds(r.Time) {
			t.loaded(r)
		}
	case ledger.Decision:
		// Collecting what waits is no call of a tool.
		collecting := r.Outcome == ledger.Allow && !r.Observed && r.Reason == "collect"
		if t.span.holds(r.Time) && !collecting {
			t.decided(r)
		}
	case ledger.Attached:
		if d, ok := t.settle(r.OperationID); ok {
			t.move(d, joined)
		}
	case ledger.Result:
		// A reviewed call that could not be parked ends without ever having been
		// shown; that of an execution has what was.
		if r.Status == ledger.StatusNotRun && r.EnvelopeDigest == "" {
			t.unparked(r)
		}
	}
}

// unparked is the end of a reviewed call that nobody was asked about. One whose
// policy was replaced meanwhile began again, and is counted as what it became.
func (t *Tally) unparked(r ledger.Record) {
	d, ok := t.settle(r.OperationID)
	switch {
	case !ok:
	case r.ErrorType == approvals.CausePolicy:
		t.count(d, asked, -1)
	default:
		t.move(d, refused)
		t.because(r.ErrorType, false)
	}
}

func (t *Tally) settle(op string) (ledger.Record, bool) {
	d, ok := t.open[op]
	delete(t.open, op)
	return d, ok
}

func (t *Tally) loaded(r ledger.Record) {
	if r.PolicyDigest != "" {
		t.policies[r.PolicyDigest] = true
	}
	if r.Observe == nil {
		return
	}
	w := Watch{Upstreams: r.Observe.Upstreams, Until: r.Observe.Until}
	if !slices.ContainsFunc(t.watches, func(o Watch) bool {
		return o.Until.Equal(w.Until) && slices.Equal(o.Upstreams, w.Upstreams)
	}) {
		t.watches = append(t.watches, w)
	}
}

func (t *Tally) decided(r ledger.Record) {
	if t.first.IsZero() || r.Time.Before(t.first) {
		t.first = r.Time
	}
	if r.Time.After(t.last) {
		t.last = r.Time
	}
	if r.PolicyDigest != "" {
		t.policies[r.PolicyDigest] = true
	}
	switch {
	case r.Outcome == ledger.Deny:
		t.count(r, refused, 1)
		t.because(cmp.Or(r.Reason, "policy_denied"), false)
	case r.Outcome == ledger.Review:
		t.count(r, asked, 1)
		t.open[r.OperationID] = ledger.Record{
			OperationID: r.OperationID, Time: r.Time, Actor: r.Actor, Person: r.Person, Server: r.Server, Tool: r.Tool, Rules: r.Rules, Routes: r.Routes,
		}
	case r.Observed && r.Reason != "":
		t.count(r, wouldRefuse, 1)
		t.because(r.Reason, true)
	case r.Observed:
		t.count(r, wouldAsk, 1)
	default:
		t.count(r, allowed, 1)
	}
}

// move says of a call that was counted as asked what it really came to.
func (t *Tally) move(d ledger.Record, to kind) {
	t.count(d, asked, -1)
	t.count(d, to, 1)
}

func (t *Tally) because(reason string, observed bool) {
	if t.reasons[reason] == nil && len(t.reasons) >= maxNames {
		reason = others
	}
	r := t.reasons[reason]
	if r == nil {
		r = &Reason{Reason: reason}
		t.reasons[reason] = r
	}
	r.Calls++
	if observed {
		r.Observed++
	}
}

func (t *Tally) count(r ledger.Record, k kind, n int) {
	at := r.Time.In(t.zone)
	all := []*Counts{&t.total, of(t.tools, toolName(r)), of(t.people, cmp.Or(r.Person, r.Actor)), of(t.actors, r.Actor), &t.hours[at.Hour()]}
	for _, rule := range r.Rules {
		all = append(all, of(t.rules, rule.ID))
	}
	for _, route := range r.Routes {
		all = append(all, of(t.routes, route.Name))
	}
	before := t.total.Questions()
	for _, c := range all {
		*k(c) += n
	}
	hour := time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), 0, 0, 0, t.zone)
	t.peaks[hour] += t.total.Questions() - before
}

func of(m map[string]*Counts, name string) *Counts {
	if m[name] == nil && len(m) >= maxNames {
		name = others
	}
	if m[name] == nil {
		m[name] = new(Counts)
	}
	return m[name]
}

// toolName is UPSTREAM/TOOL, or the name as it was sent where no upstream has it.
func toolName(r ledger.Record) string {
	if r.Server == "" {
		return r.Tool
	}
	return r.Server + "/" + r.Tool
}

// Report is what was counted. Names are as they stand on the ledger: strangers
// chose some of them.
type Report struct {
	First    time.Time `json:"first,omitzero"` // the first decision that was counted
	Last     time.Time `json:"last,omitzero"`
	Zone     string    `json:"zone"`
	Total    Counts    `json:"total"`
	Tools    []Row     `json:"tools"`  // most questions first
	People   []Row     `json:"people"` // the same; an actor where nobody is known behind it
	Actors   []Row     `json:"actors"` // the same
	Hours    []Row     `json:"hours"`  // of the day, those in which anything was called
	Rules    []Row     `json:"rules"`  // the reasons that carried the decisions
	Routes   []Row     `json:"routes"` // of observed calls
	Reasons  []Reason  `json:"reasons"`
	Policies []string  `json:"policies"` // digests
	Watches  []Watch   `json:"observe"`
	Peak     *Peak     `json:"peak,omitempty"`
}

// Peak is the hour of the calendar with the most questions.
type Peak struct {
	Hour      time.Time `json:"hour"`
	Questions int       `json:"questions"`
}

// Report gives the counts so far.
func (t *Tally) Report() Report {
	r := Report{
		First: t.first, Last: t.last, Zone: t.zone.String(), Total: t.total,
		Tools: rows(t.tools), People: rows(t.people), Actors: rows(t.actors), Hours: []Row{}, Rules: rows(t.rules), Routes: rows(t.routes),
		Reasons: []Reason{}, Policies: []string{}, Watches: append([]Watch{}, t.watches...),
	}
	for h, c := range t.hours {
		if c.Calls() > 0 {
			r.Hours = append(r.Hours, Row{Name: hourName(h), Counts: c})
		}
	}
	for _, reason := range t.reasons {
		r.Reasons = append(r.Reasons, *reason)
	}
	slices.SortFunc(r.Reasons, func(a, b Reason) int {
		return cmp.Or(b.Calls-a.Calls, cmp.Compare(a.Reason, b.Reason))
	})
	for digest := range t.policies {
		r.Policies = append(r.Policies, digest)
	}
	slices.Sort(r.Policies)
	for hour, n := range t.peaks {
		if n > 0 && (r.Peak == nil || n > r.Peak.Questions || n == r.Peak.Questions && hour.Before(r.Peak.Hour)) {
			r.Peak = &Peak{hour, n}
		}
	}
	return r
}

func hourName(h int) string {
	name := strconv.Itoa(h) + ":00"
	if h < 10 {
		name = "0" + name
	}
	return name
}

func rows(m map[string]*Counts) []Row {
	out := []Row{}
	for name, c := range m {
		if c.Calls() > 0 {
			out = append(out, Row{name, *c})
		}
	}
	slices.SortFunc(out, func(a, b Row) int {
		return cmp.Or(b.Questions()-a.Questions(), b.Calls()-a.Calls(), cmp.Compare(a.Name, b.Name))
	})
	return out
}
