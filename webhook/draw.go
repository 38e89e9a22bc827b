package webhook

import (
	"context"
	"fmt"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/webhook/page"
)

// draw makes the page of an approval as it stands, with the form that its reader
// may use.
func (s *Server) draw(ctx context.Context, o opened) page.Approval {
	a := s.facts(o.ticket)
	switch {
	case o.ticket.State != approvals.Pending:
		a.Status = sayState(o.ticket)
	case !a.Deadline.After(a.Now):
		a.Status = "Its time is over. It will not run."
	default:
		a.Needed = needed(o.ticket)
		s.offer(ctx, &a, o)
	}
	return a
}

// facts is what the page says of a request, whoever reads it.
func (s *Server) facts(t approvals.Ticket) page.Approval {
	a := page.Approval{
		Title: titleOf(t), Who: whoAsked(t), Server: t.Server, Tool: t.Tool, Tier: t.Tier, Why: t.Rules,
		Deadline: t.Deadline, Now: s.now(),
		Text: t.View.Text, Warnings: t.View.Warnings, Missing: t.View.Missing,
	}
	if len(a.Missing) == 0 && !t.View.Complete() {
		a.Missing = []string{"the arguments"}
	}
	for _, m := range t.View.Masked {
		a.Masked = append(a.Masked, page.Mask{Pointer: m.Pointer, Type: m.Type, Len: m.Len, Digest: m.Short()})
	}
	return a
}

// offer adds the form that fits the reader. It only spares people a refusal: the
// vote itself is judged where it is counted.
func (s *Server) offer(ctx context.Context, a *page.Approval, o opened) {
	f := &page.Form{Nonce: s.nonce(o), WhyNot: approveBar(o.ticket)}
	m, err := s.memberships(ctx, o.person, o.ticket)
	if err == nil {
		st := standing(o.ticket, o.person, m, s.now())
		if !st.MayDeny {
			a.Status = "You are not among the people who may answer this request."
			return
		}
		if !st.MayApprove {
			f.WhyNot = "You asked for this call, or answer for the account that did: somebody else must approve it. You may deny it."
		}
	}
	f.MayApprove = f.WhyNot == ""
	a.Form = f
}

// approveBar says why a link can't approve this at all; "" when it can.
func approveBar(t approvals.Ticket) string {
	switch {
	case t.Links != "approve":
		return "A link alone can't approve this, only deny it. Approve it where you were told of it, or with: countersign approvals approve " + t.ID
	case !t.View.Complete():
		return "The whole call can't be shown to anybody, so this page can't approve it. Deny it and ask for a shorter one; it can only be approved unseen, with: countersign approvals approve " + t.ID
	}
	return ""
}

// drawTaken is the page after an answer was taken.
func (s *Server) drawTaken(t approvals.Ticket, v approvals.Verdict) page.Approval {
	a := s.facts(t)
	a.Status = "Your answer was recorded: " + v.String() + ". " + sayState(t)
	if t.State == approvals.Pending {
		a.Needed = needed(t)
	}
	return a
}

func titleOf(t approvals.Ticket) string {
	if t.Title != "" {
		return t.Title
	}
	return t.Tool
}

func whoAsked(t approvals.Ticket) string {
	if t.Requester != "" && t.Requester != t.Actor {
		return t.Actor + " (" + t.Requester + ")"
	}
	return t.Actor
}

// needed says, for each route with a quorum, how many people have agreed.
func needed(t approvals.Ticket) []string {
	var out []string
	for _, req := range t.Requirements {
		if req.Quorum < 2 && len(t.Requirements) < 2 {
			continue
		}
		have := map[string]bool{}
		for _, c := range t.Votes {
			if c.Requirement == req.Route && c.Verdict == approvals.Approve {
				have[c.Person] = true
			}
		}
		if len(have) < req.Quorum {
			out = append(out, fmt.Sprintf("route %s: %d of %d have approved", req.Route, len(have), req.Quorum))
		}
	}
	return out
}
