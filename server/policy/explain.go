package policy

// Outcome is what became of one rule in a judgement.
type Outcome string

// The outcomes. A rule on an argument passes or fails it. Another rule fires or
// not, or can't be judged, which denies, or does not cover the tool.
const (
	Fired     Outcome = "fired"
	NotFired  Outcome = "not fired"
	Failed    Outcome = "error"
	OtherTool Outcome = "other tool"
	Passed    Outcome = "passed"
	Denied    Outcome = "denied"
)

// Step is one rule in an Explanation. It never holds a value of the call.
type Step struct {
	ID      string  `json:"id"` // as in Reason; of an entry its pattern
	Line    int     `json:"line"`
	Effect  string  `json:"effect,omitempty"` // of an entry, or of a rule when it fires
	Outcome Outcome `json:"outcome"`
	Text    string  `json:"text,omitempty"` // what it said
}

// Explanation is a judgement with everything that had a part in it.
type Explanation struct {
	Verdict Verdict
	Entries []Step // the entries of the table of tools that decided
	Args    []Step // every rule on an argument
	Rules   []Step // every rule, in the file's order; none for what is denied or not listed
}

// Explain judges a call as Judge does, and says what each rule found.
func (s *Set) Explain(f Facts) Explanation {
	var note Explanation
	note.Verdict = s.judge(&f, &note)
	return note
}

func (n *Explanation) entry(e *entry) {
	if n != nil {
		n.Entries = append(n.Entries, Step{ID: e.pattern.text, Line: e.line, Effect: e.said.Effect.String(), Outcome: Fired, Text: e.said.Text})
	}
}

func (n *Explanation) arg(r *argRule, why string) {
	if n == nil {
		return
	}
	step := Step{ID: "args:" + r.pointer, Line: r.line, Outcome: Passed, Text: why}
	if why != "" {
		step.Outcome = Denied
	}
	n.Args = append(n.Args, step)
}

func (n *Explanation) rule(r *rule, said Reason, o Outcome) {
	if n != nil {
		n.Rules = append(n.Rules, Step{ID: r.id, Line: r.line, Effect: r.fired.Effect.String(), Outcome: o, Text: said.Text})
	}
}
