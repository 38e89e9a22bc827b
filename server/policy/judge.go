package policy

import (
	"context"
	"slices"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

// Judge decides on a call. It never fails: what can't be judged is denied.
func (s *Set) Judge(f Facts) Verdict { return s.judge(&f, nil) }

// judgement is one call being judged.
type judgement struct {
	vars   activation
	args   object
	note   *Explanation // nil unless somebody asks for one
	ctx    context.Context
	cancel context.CancelFunc
	left   steps // of all regular expressions
	around int   // from 1: bytes that conditions can look at beside the arguments; 0 until one asks
}

// deadline ends when the time of the judgement is over.
func (j *judgement) deadline() context.Context {
	if j.ctx == nil {
		j.ctx, j.cancel = context.WithTimeout(context.Background(), maxTime)
	}
	return j.ctx
}

func (s *Set) judge(f *Facts, note *Explanation) Verdict {
	if s == nil {
		return Verdict{Reasons: []Reason{{ID: Unlisted, Text: "no policy is loaded"}}}
	}
	c := &f.Call
	v := Verdict{Policy: s.digest}
	if !validServer(c.Server) || !validTool(c.Tool) {
		v.add(Reason{ID: Unlisted, Text: "the tool's name is not one that a policy can list"})
		return v
	}
	for i := range s.denied {
		if e := &s.denied[i]; e.pattern.covers(c.Server, c.Tool) {
			v.add(e.said)
			note.entry(e)
		}
	}
	if len(v.Reasons) > 0 {
		return v
	}
	e, ok := s.find(c.Server, c.Tool)
	if !ok {
		v.add(Reason{ID: Unlisted, Text: "the policy does not list this tool"})
		return v
	}
	note.entry(e)
	s.weigh(&v, f, e, note)
	return v
}

// weigh lets the entry of a listed tool and every rule speak.
func (s *Set) weigh(v *Verdict, f *Facts, e *entry, note *Explanation) {
	j := &judgement{args: object{group: group{raw: f.Call.Args}}, note: note, left: maxSteps}
	j.vars = activation{facts: f, tier: e.seen, args: &j.args, left: &j.left}
	v.Tier = e.tier
	v.Reasons = make([]Reason, 0, 4)
	v.add(e.said)
	if e.said.Effect == Review {
		v.ask(s.routes[e.route])
	}
	j.judgeArgs(v, e.args)
	failed := false
	for i := range s.rules {
		r := &s.rules[i]
		if !r.covers(f.Call.Server, f.Call.Tool) {
			note.rule(r, Reason{}, OtherTool)
			continue
		}
		reason, outcome := r.judge(j)
		note.rule(r, reason, outcome)
		if outcome == NotFired {
			continue
		}
		failed = failed || outcome == Failed
		v.add(reason)
		if reason.Effect == Review {
			v.ask(s.routes[r.route])
		}
	}
	if j.cancel != nil {
		v.Hurried = failed && j.ctx.Err() != nil
		j.cancel()
	}
	if j.args.broken && len(j.args.raw) > 0 {
		v.add(Reason{ID: "args:", Text: "the arguments can't be read"})
	}
	v.settle()
}

// judgeArgs runs every rule on the arguments. Only denials are reasons.
func (j *judgement) judgeArgs(v *Verdict, rules []argRule) {
	if len(j.args.raw) > 0 && action.TypeOf(j.args.raw) != "object" {
		v.add(Reason{ID: "args:", Text: "the arguments are not an object"})
		return
	}
	for i := range rules {
		r := &rules[i]
		why := "has another spelling than in the policy"
		if raw, known := j.args.member(r.name); known {
			why = r.judge(raw, &j.left)
		}
		j.note.arg(r, why)
		if why != "" {
			v.add(Reason{ID: "args:" + r.pointer, Text: r.name + ": " + why})
		}
	}
}

func (v *Verdict) add(r Reason) { v.Reasons = append(v.Reasons, r) }

// ask adds a route, once.
func (v *Verdict) ask(r approvals.Route) {
	if !slices.ContainsFunc(v.Routes, func(o approvals.Route) bool { return o.Name == r.Name }) {
		v.Routes = append(v.Routes, r)
	}
}

// settle makes the effect: the strictest of all reasons.
func (v *Verdict) settle() {
	v.Effect = Allow
	for _, r := range v.Reasons {
		v.Effect = min(v.Effect, r.Effect)
	}
	slices.SortStableFunc(v.Reasons, func(a, b Reason) int { return int(a.Effect) - int(b.Effect) })
	if v.Effect != Review {
		v.Routes = nil
	}
}

// said is the reason that an entry itself gives.
func (s *Set) said(e entry) Reason {
	switch {
	case e.deny:
		return Reason{ID: "tool:" + e.pattern.text, Text: "the policy denies this tool"}
	case e.tier == "":
		return Reason{ID: "tool:" + e.pattern.text, Effect: Allow, Text: "the policy allows this tool"}
	}
	r := Reason{ID: "tier:" + e.tier, Effect: s.effect(e)}
	switch r.Effect {
	case Allow:
		r.Text = e.tier + " tools are allowed"
	case Review:
		r.Text = e.tier + " tools need a person's yes"
	default:
		r.Text = e.tier + " tools are denied"
	}
	return r
}
