package slack

import (
	"fmt"
	"slices"

	"github.com/countersign-mcp/countersign/approvals"
)

// headline says in a few words how an approval stands; it begins the push text.
func headline(t approvals.Ticket) string {
	switch t.State {
	case approvals.Approved:
		return "Approved, not run yet"
	case approvals.Denied:
		return "Denied"
	case approvals.Expired:
		return "Expired, not run"
	case approvals.Withdrawn:
		return "Withdrawn, not run"
	case approvals.Void:
		return "Void, not run"
	case approvals.Lapsed:
		return "Lapsed, not run"
	case approvals.Revoked:
		return "Taken back, not run"
	case approvals.Executing:
		return "Approved, running"
	case approvals.Succeeded:
		return "Ran, succeeded"
	case approvals.Failed:
		return "Ran, the tool failed"
	case approvals.NotRun:
		return "Not run"
	case approvals.Unknown:
		return "Unknown whether it ran"
	}
	return "Waiting"
}

// outcome says what became of an approval, from the record alone.
func outcome(t approvals.Ticket) []sentence {
	var out []sentence
	add := func(p ...piece) { out = append(out, p) }
	yes := approvers(t)
	if len(yes) > 0 && t.State != approvals.Pending && t.State != approvals.Denied && t.State != approvals.Expired {
		s := sentence{strong("Approved"), say(" by ")}.and(people(yes)...)
		if !t.DecidedAt.IsZero() {
			s = s.and(say(", "), when(t.DecidedAt))
		}
		out = append(out, s.and(say(".")))
	}
	switch t.State {
	case approvals.Approved:
		if t.Run == "on_approve" {
			add(strong("Waiting to run"), say(": it starts by itself."))
		} else {
			add(strong("Waiting to run"), say(": it runs when the caller comes back for it."))
		}
		if !t.ClaimBy.IsZero() {
			add(say("It lapses "), when(t.ClaimBy), say("."))
		}
	case approvals.Executing:
		add(strong("Running now."))
	case approvals.Succeeded:
		add(ended(t, strong("It ran"), say(reported(t, "success")))...)
	case approvals.Failed:
		add(ended(t, strong("It ran"), say(reported(t, "an error")))...)
	case approvals.NotRun:
		add(ended(t, strong("It was not run"), say(because(t.Cause)))...)
	case approvals.Unknown:
		add(strong("It is not known whether it ran"), say(because(t.Cause)+". It is never run again by itself."))
		add(say("Find out, then close it with: countersign approvals resolve " + t.ID + " --ran --note …, or --not-run."))
	case approvals.Denied:
		add(ended(t, by(t, "Denied")...)...)
	case approvals.Expired:
		add(ended(t, strong("Expired"), say(", not run: not enough people answered in time"))...)
		if t.Cause == approvals.CauseUndelivered {
			add(say("No message had reached anyone."))
		}
		if len(yes) > 0 {
			add(append(sentence{say("Yes had been said by ")}, people(yes)...).and(say("."))...)
		}
	case approvals.Withdrawn:
		add(ended(t, by(t, "Withdrawn", say(", not run"))...)...)
	case approvals.Void:
		add(ended(t, strong("Void"), say(", not run"+because(t.Cause)))...)
	case approvals.Lapsed:
		add(ended(t, strong("Lapsed"), say(", not run: nobody came back for it in time"))...)
	case approvals.Revoked:
		add(ended(t, by(t, "Taken back", say(", not run"))...)...)
	}
	if t.Cause == approvals.CauseResolved && t.By != "" {
		add(say("This is known from "), who(t.By), say(", who closed it by hand."))
	}
	if t.Reason != "" {
		words, _ := line(t.Reason, mostReason)
		add(say("Reason: "), quote(words))
	}
	return out
}

// reported is what the tool said, which nobody knows when a person closed it.
func reported(t approvals.Ticket, what string) string {
	if t.Cause == approvals.CauseResolved {
		return ""
	}
	return " and the tool reported " + what
}

// ended closes a sentence with the moment of the end.
func ended(t approvals.Ticket, p ...piece) sentence {
	s := sentence(p)
	at := t.EndedAt
	if at.IsZero() {
		at = t.DecidedAt
	}
	if !at.IsZero() {
		s = s.and(say(", "), when(at))
	}
	return s.and(say("."))
}

// by says who brought the present state about: a person or an actor.
func by(t approvals.Ticket, what string, after ...piece) []piece {
	s := sentence{strong(what)}
	if t.By != "" {
		s = s.and(say(" by "), who(t.By))
	}
	return s.and(after...)
}

// because puts a cause into words that follow a sentence.
func because(cause string) string {
	switch cause {
	case approvals.CausePolicy:
		return ": the policy changed"
	case approvals.CauseTool:
		return ": the tool's definition changed"
	case approvals.CauseLabels:
		return ": more is known now of where its values come from"
	case approvals.CauseForged:
		return ": a stored vote does not verify"
	case approvals.CauseActor:
		return ": the caller may no longer ask for this"
	case approvals.CauseNeverStarted:
		return ": the process ended before it began"
	case approvals.CauseUnclearClaim:
		return ": the store did not say clearly whether it may run"
	case approvals.CauseOverslept:
		return ": the process was held up too long before sending it"
	case approvals.CauseNotSent:
		return ": the server could not be reached"
	case approvals.CauseOwnerLost:
		return ": the process that ran it did not return"
	case approvals.CauseNoAnswer:
		return ": it was sent, and no answer came"
	case approvals.CauseLedger:
		return ": the ledger could not be written"
	}
	return ""
}

// approvers are the people who said yes, each once.
func approvers(t approvals.Ticket) []string {
	var out []string
	for _, v := range t.Votes {
		if v.Verdict == approvals.Approve && !slices.Contains(out, v.Person) {
			out = append(out, v.Person)
		}
	}
	if len(out) > mostPeople {
		out = out[:mostPeople]
	}
	return out
}

// progress says who has agreed so far, where more than one must.
func progress(t approvals.Ticket) []sentence {
	var out []sentence
	for _, r := range t.Requirements {
		if r.Quorum < 2 && len(t.Requirements) < 2 {
			continue
		}
		var yes []string
		for _, v := range t.Votes {
			if v.Requirement == r.Route && v.Verdict == approvals.Approve && len(yes) < mostPeople {
				yes = append(yes, v.Person)
			}
		}
		route, _ := line(r.Route, mostName)
		s := sentence{say(fmt.Sprintf("Needs %d of route ", r.Quorum)), quote(route)}
		if len(yes) > 0 {
			s = append(s.and(say(fmt.Sprintf("; %d so far: ", len(yes)))), people(yes)...)
		}
		out = append(out, s.and(say(".")))
		if len(out) == mostLines {
			break
		}
	}
	return out
}
