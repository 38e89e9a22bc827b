package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/redact"
)

type policyExplainCmd struct {
	Policy string `help:"Policy file, instead of the configuration's." placeholder:"FILE" type:"path"`
	JSON   bool   `help:"Print JSON."`
	Call   string `arg:"" name:"CALL" help:"The call: a JSON file, or - for standard input."`
}

// Help shows a call.
func (policyExplainCmd) Help() string {
	return `A call is {"tool": "UPSTREAM/TOOL", "args": {…}}, and if it matters "actor", "roles", "labels", "session", "workflow" and "evidence", as in a policy's cases.`
}

// Run explains one judgement. The exit code is not the verdict's.
func (c policyExplainCmd) Run(term terminal, common *common) error {
	facts, err := readCall(term, c.Call)
	if err != nil {
		return err
	}
	set, err := c.set(common, &facts)
	if err != nil {
		return err
	}
	e := explain(set, facts, time.Now())
	if c.JSON {
		return e.json(term.out)
	}
	return e.text(term.out)
}

// set is the policy, bound. The roles that it gives to the call's actor are added
// to those of the call, as the gate does.
func (c policyExplainCmd) set(common *common, f *policy.Facts) (*policy.Set, error) {
	a := &f.Call.Actor
	if c.Policy != "" {
		set, err := readPolicy(c.Policy)
		if err != nil {
			return nil, err
		}
		a.Roles = set.Roles(a.Roles, a.ID, nil)
		return set, set.Bind(append(set.Observation().Upstreams, f.Call.Server))
	}
	cfg, err := config.Load(common.Config)
	if err != nil {
		return nil, fmt.Errorf("%w\nWithout a configuration, name a policy: --policy FILE", err)
	}
	set, err := readPolicy(cfg.PolicyPath())
	if err != nil {
		return nil, err
	}
	roster, err := cfg.Roster()
	if err != nil {
		return nil, err
	}
	a.Roles = set.Roles(a.Roles, a.ID, roster.Groups(roster.ByActor(a.ID)))
	if err := set.Bind(slices.Sorted(maps.Keys(cfg.Upstreams))); err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.PolicyPath(), err)
	}
	return set, nil
}

// explanation is a judgement as it is printed. Of the call it has names and
// types, and no value.
type explanation struct {
	facts    policy.Facts
	observed time.Time // until when nobody is asked; zero when the verdict holds now
	policy.Explanation
}

func explain(set *policy.Set, f policy.Facts, now time.Time) explanation {
	e := explanation{facts: f, Explanation: set.Explain(f)}
	if e.Verdict.Effect == policy.Review && set.Observes(f.Call.Server, now) {
		e.observed = set.Observation().Until.UTC()
	}
	return e
}

// argument is one argument of the call.
type argument struct {
	Name   string   `json:"name"`
	Type   string   `json:"type"`
	Labels []string `json:"labels,omitempty"`
}

func (e explanation) arguments() []argument {
	out := []argument{}
	for name, v := range action.Fields(e.facts.Call.Args) {
		a := argument{Name: redact.Visible(name), Type: action.TypeOf(v)}
		for _, l := range e.facts.Labels["/"+action.EscapePointer(name)] {
			a.Labels = append(a.Labels, redact.Visible(l))
		}
		out = append(out, a)
	}
	return out
}

func (e explanation) tool() string {
	return redact.Visible(e.facts.Call.Server + "/" + e.facts.Call.Tool)
}

func (e explanation) routes() []string {
	out := []string{}
	for _, r := range e.Verdict.Routes {
		out = append(out, r.Name)
	}
	return out
}

func (e explanation) json(w io.Writer) error {
	type reason struct {
		ID     string `json:"id"`
		Effect string `json:"effect"`
		Text   string `json:"text"`
	}
	reasons := []reason{}
	for _, r := range e.Verdict.Reasons {
		reasons = append(reasons, reason{r.ID, r.Effect.String(), r.Text})
	}
	steps := func(s []policy.Step) []policy.Step { return append([]policy.Step{}, s...) }
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(struct {
		Tool      string        `json:"tool"`
		Effect    string        `json:"effect"`
		Tier      string        `json:"tier,omitempty"`
		Routes    []string      `json:"routes"`
		Observed  time.Time     `json:"observed_until,omitzero"`
		Reasons   []reason      `json:"reasons"`
		Entries   []policy.Step `json:"entries"`
		Args      []policy.Step `json:"args"`
		Rules     []policy.Step `json:"rules"`
		Roles     []string      `json:"roles"`
		Arguments []argument    `json:"arguments"`
		Policy    string        `json:"policy"`
	}{
		e.tool(), e.Verdict.Effect.String(), e.Verdict.Tier, e.routes(), e.observed, reasons,
		steps(e.Entries), steps(e.Args), steps(e.Rules),
		append([]string{}, e.facts.Call.Actor.Roles...), e.arguments(), e.Verdict.Policy.Hex(),
	})
}

func (e explanation) text(out io.Writer) error {
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "%s: %s\n", e.tool(), e.Verdict.Effect)
	if routes := e.routes(); len(routes) > 0 {
		fmt.Fprintf(w, "asks on: %s\n", strings.Join(routes, ", "))
	}
	if !e.observed.IsZero() {
		fmt.Fprintf(w, "observed: runs without a yes until %s\n", e.observed.Format(time.RFC3339))
	}
	if e.Verdict.Tier != "" {
		fmt.Fprintf(w, "tier: %s\n", e.Verdict.Tier)
	}
	fmt.Fprintf(w, "roles: %s\n", or(redact.Visible(strings.Join(e.facts.Call.Actor.Roles, ", ")), "none"))
	e.because(w)
	e.steps(w, "tools", e.Entries)
	e.steps(w, "arguments", e.Args)
	e.steps(w, "rules", e.Rules)
	if args := e.arguments(); len(args) > 0 {
		fmt.Fprint(w, "\nthe call's arguments (no values):\n")
		for _, a := range args {
			fmt.Fprintf(w, "  %s\t%s\t%s\n", a.Name, a.Type, strings.Join(a.Labels, ", "))
		}
	}
	if err := w.Flush(); err != nil { // into memory it can't fail
		return err
	}
	for line := range strings.Lines(table.String()) {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return fmt.Errorf("writing the explanation: %w", err)
		}
	}
	return nil
}

// because prints the reasons that brought the effect about.
func (e explanation) because(w io.Writer) {
	fmt.Fprint(w, "because:\n")
	for _, r := range e.Verdict.Reasons {
		if r.Effect == e.Verdict.Effect {
			fmt.Fprintf(w, "  %s\t%s\n", r.ID, redact.Visible(r.Text))
		}
	}
}

func (e explanation) steps(w io.Writer, what string, steps []policy.Step) {
	if len(steps) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s:\n", what)
	for _, s := range steps {
		outcome := string(s.Outcome)
		// An entry, and a rule that fired, say what they ask for.
		if s.Outcome == policy.Fired {
			outcome = s.Effect
		}
		if s.Outcome == policy.Failed {
			outcome = "error: deny"
		}
		fmt.Fprintf(w, "  line %d\t%s\t%s\t%s\n", s.Line, redact.Visible(s.ID), outcome, redact.Visible(s.Text))
	}
}
