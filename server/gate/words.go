package gate

import (
	"fmt"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/server/redact"
)

// What callers are told. The reader is a program that acts on the words: they
// say what happened, what did not, and what to do next.

const (
	sayNoSuchTool = "There is no tool of this name here. Nothing was run."
	sayDenied     = "The policy denies this call. Nothing was run."
	sayDeniedFor  = "The policy denies this call (%s). Nothing was run."
	sayChanged    = "The policy changed while the call was on its way, and does not allow it now. Nothing was run."
	sayGrown      = "More is known by now of where the values of this call come from, and the policy does not let it pass as it is. Nothing was run; the call may be made again, and is judged anew then."
	sayHeld       = "This tool is not what people agreed to: its server describes it in another way now, so it is held back. Nothing was run; do not vary the call, and try again when someone has agreed to the change."
	sayUnpinned   = "Nobody has agreed to this tool yet, so it is held back. Nothing was run; do not vary the call, and try again when someone has."
	sayReserved   = "This caller's name is the gate's own. Nothing was run; someone has to give the caller another name."
	sayStopping   = "The gate is being stopped. Nothing was run; try again later."
	sayNoLedger   = "The call can't be recorded, so it was not run. Someone has to repair the gate's ledger."
	sayNoUpstream = "The server behind this tool can't be reached. Nothing was run; try again later."
	sayNoStore    = "This call needs a person's approval, and approvals can't be kept at the moment. Nothing was run; try again later."
	sayNotParked  = "This call needs a person's approval, and it could not be asked for. Nothing was run."
	sayNoNotifier = "This call needs a person's approval, and nobody can be told of it at the moment. Nothing was run; try again later."
	sayLimited    = "Too many calls of this kind were made in a short time. Nothing was run; it may be called again in about %s."
	sayBehind     = "This call needs a person's approval, and this process of the gate has another policy than the one that was loaded last. Nothing was run. Someone who runs the gate has to put the newest policy there and reload this process (SIGHUP); try again after that."
	sayTooMany    = "Too many of your calls wait for approval already. Nothing was run; wait until some of them are decided, or collect what was."
	sayRequester  = "This call needs the approval of someone other than its requester, and the gate does not know which person you act for. Nothing was run; ask whoever runs the gate to list this actor under people."
	sayTooBig     = "The call is too long for one that needs approval: its arguments and the rest of its params are more than %d bytes. Nothing was run."

	sayTooManyInAll    = "Too many calls of all callers wait for approval already. Nothing was run; wait until some of them are decided."
	sayTooManyNew      = "Too many new calls of yours were put before people within an hour. Nothing was run; another may be asked for in about %s."
	sayTooManyNewInAll = "Too many new calls of all callers were put before people within an hour. Nothing was run; another may be asked for in about %s."
	sayClosed          = "People said no to your last calls, one after the other, so no new ones are put before them for now. Nothing was run; another may be asked for in about %s. Before that, find out what they object to. Calls that need no approval are still taken."

	sayTokenChanged = "The token of this caller was changed or removed while the call was on its way. Nothing was run; call again with a valid token."
	sayBadArguments = "The arguments do not fit the tool's input schema, at %s. Nothing was run and nobody was asked; change the arguments and call again."
	sayTooComplex   = "The arguments could not be compared with the tool's input schema within the bounds of time and size. Nothing was run and nobody was asked; call with fewer or simpler arguments."
	sayUnsure       = "The tool's input schema can't be judged in full here (%s), so the arguments may not fit it."

	sayCollectArgs  = "countersign_collect takes one argument, approval_id, a string."
	sayUnknownID    = "There is no approval of yours with this id. It may be over for long, or was never there."
	sayForgedRecord = "The record of this approval does not verify. Nothing was run; someone has to look at it."

	sayNotArguments = "Not an argument error; do not vary the call."
	sayUnknown      = "The call was sent and no answer was read, so nobody knows whether it ran. Look at its effect before you call again."
	sayLedgerLost   = "The call was sent, and its outcome could not be recorded, so it counts as unknown. Nothing more runs until the gate's ledger works. Look at its effect before you call again."
	sayGone         = "The record of this approval is gone, so it can't be run any more. Calling again asks anew."

	sayStuckResult   = "The call ran, and its result can't be read at the moment."
	sayStuckStore    = "It is approved, and can't be run at the moment because the store of approvals does not answer."
	sayStuckBehind   = "It is approved, and can't be run here because this process of the gate has another policy than the one that was loaded last. Someone who runs the gate has to reload it (SIGHUP)."
	sayStuckBusy     = "It is approved, and can't be run at the moment because the gate is too busy to judge it again."
	sayStuckLedger   = "It is approved, and can't be run at the moment because the gate's ledger can't be read. Someone has to repair it."
	sayStuckUpstream = "It is approved, and can't be run at the moment because the server behind the tool can't be reached."
)

// update is what a caller that can be told hears while it waits.
func (k *call) update(t approvals.Ticket) Update {
	switch t.State {
	case approvals.Approved:
		return Update{Waiting: "Approved; about to run.", Left: left(t.ClaimBy)}
	case approvals.Executing:
		return Update{Waiting: "Approved; running.", Left: k.g.set.ExecTimeout}
	}
	return Update{Waiting: "Waiting for a person's approval.", Left: left(t.Deadline)}
}

func left(until time.Time) time.Duration {
	if until.IsZero() {
		return 0
	}
	return max(0, time.Until(until))
}

// sayWaits is the text of a pending result.
func sayWaits(t approvals.Ticket, why *stuck, collect bool, collects int) string {
	var s []string
	switch {
	case over(t.State):
		s = append(s, why.words)
	case t.State == approvals.Executing:
		s = append(s, "Approved, and running now. The call is not answered yet.")
	case t.State == approvals.Approved && why == nil:
		s = append(s, fmt.Sprintf("Approved, and not run yet. It can be collected until %s.", stamp(t.ClaimBy)))
	case t.State == approvals.Approved:
		s = append(s, why.words, fmt.Sprintf("It can be collected until %s.", stamp(t.ClaimBy)))
	default:
		s = append(s, "The call is not run yet: it waits for a person's approval.", sayDelivery(t),
			fmt.Sprintf("If nobody decides, it ends at %s.", stamp(t.Deadline)))
	}
	if collect {
		s = append(s, fmt.Sprintf("To get its result, call %s with {\"approval_id\":%s}, or make the same call again with identical arguments.", CollectTool, quote(t.ID)))
	} else {
		s = append(s, "To get its result, make the same call again with identical arguments.")
	}
	if collects >= 2 {
		s = append(s, "You have collected it twice already: do other work now, or end your turn. The approval is not lost by that.")
	}
	return strings.Join(s, " ")
}

// sayBadClaim says what is wrong with a claim, and how one is written.
func sayBadClaim(err error) string {
	return "Refused: " + err.Error() + `. Write it as {"v":1,"labels":{"/argument":["retrieved"]}}, or leave it out. Nothing was run.`
}

// sayDelivery says whom the question has reached.
func sayDelivery(t approvals.Ticket) string {
	told, failed := map[string]bool{}, map[string]approvals.Trouble{}
	for _, r := range t.Refs {
		told[r.Channel] = true
	}
	for _, f := range t.Troubles {
		failed[f.Channel] = f
	}
	var yes, no, open []string
	for _, ch := range t.Channels {
		switch f, bad := failed[ch]; {
		case told[ch]:
			yes = append(yes, ch)
		case bad && f.Final:
			no = append(no, fmt.Sprintf("%s (%s)", ch, f.Reason))
		case bad:
			open = append(open, fmt.Sprintf("%s (%s; tried again)", ch, f.Reason))
		default:
			open = append(open, ch)
		}
	}
	var s []string
	if len(yes) > 0 {
		s = append(s, "The request was delivered to "+strings.Join(yes, ", ")+".")
	} else {
		s = append(s, "The request has not been delivered to anyone yet.")
	}
	if len(open) > 0 {
		s = append(s, "Still to be delivered: "+strings.Join(open, ", ")+".")
	}
	if len(no) > 0 {
		s = append(s, "It could not be delivered to "+strings.Join(no, ", ")+".")
	}
	return strings.Join(s, " ")
}

// sayEnd tells how an approval ended, and whether anything ran.
func sayEnd(t approvals.Ticket) string {
	switch t.State {
	case approvals.Denied:
		return "A person denied this call" + by(t) + ", so it was not run." + words(t)
	case approvals.Expired:
		if t.Cause == approvals.CauseUndelivered {
			return fmt.Sprintf("The request for approval could not be delivered to anyone by %s, so the call was not run. Nobody said no.", stamp(t.Deadline))
		}
		return fmt.Sprintf("Nobody decided by %s, so the call was not run. Nobody said no.", stamp(t.Deadline))
	case approvals.Withdrawn:
		return "The request for approval was withdrawn" + by(t) + ", so the call was not run." + words(t)
	case approvals.Lapsed:
		return fmt.Sprintf("The call was approved, and nobody collected it by %s, so it was not run. Calling again asks anew.", stamp(t.ClaimBy))
	case approvals.Revoked:
		return "The approval was taken back" + by(t) + " before the call ran, so it was not run." + words(t)
	case approvals.Void:
		return "The call was approved and was not run: " + sayVoid(t.Cause) + " Calling again asks anew."
	case approvals.NotRun:
		return "The call was approved and was not run: " + sayNotRun(t.Cause) + " Calling again asks anew."
	case approvals.Unknown:
		return "The call was approved and started, and nobody knows whether it ran: " + sayWhyUnknown(t.Cause) +
			" It is not run again by itself. Look at its effect, and leave the rest to a person."
	}
	return sayBodyless(t)
}

func sayVoid(cause string) string {
	switch cause {
	case approvals.CausePolicy:
		return "the policy changed after people agreed."
	case approvals.CauseTool:
		return "the tool's definition changed after people agreed."
	case approvals.CauseActor:
		return "the caller's roles or people changed after people agreed."
	case approvals.CauseLabels:
		return "more is known by now of where its values come from, and the policy asks for more than people agreed to."
	case approvals.CauseForged:
		return "what is stored of the approval does not verify."
	case string(approvals.AlreadyUsed):
		return "this approval was used before."
	}
	return "it does not fit any more what people agreed to."
}

func sayNotRun(cause string) string {
	switch cause {
	case approvals.CauseNeverStarted:
		return "the gate stopped before it was sent."
	case approvals.CauseUnclearClaim:
		return "the store gave no clear reply before it was sent."
	case approvals.CauseOverslept:
		return "the gate was held up for too long before it was sent."
	case approvals.CauseNotSent:
		return "the server behind the tool could not be reached."
	case approvals.CauseLedger:
		return "its start could not be recorded."
	case approvals.CauseResolved:
		return "a person looked, and it had not run."
	}
	return sayVoid(cause)
}

func sayWhyUnknown(cause string) string {
	switch cause {
	case approvals.CauseNoAnswer:
		return "it was sent, and no answer was read."
	case approvals.CauseLedger:
		return "it was sent, and its outcome could not be recorded. Nothing more runs until the gate's ledger works."
	}
	return "the process that ran it was lost."
}

// sayBodyless is for a call that ran and whose answer can't be given again.
func sayBodyless(t approvals.Ticket) string {
	ran := "The call ran"
	if !t.EndedAt.IsZero() {
		ran += " (it ended at " + stamp(t.EndedAt) + ")"
	}
	if t.State == approvals.Failed {
		ran += " and the tool reported an error"
	}
	switch t.Cause {
	case approvals.CauseResultTooBig:
		ran += "; its result was too long to be kept, and was given out once"
	case approvals.CauseResultExpired:
		ran += "; its result was kept for a while and is gone"
	case approvals.CauseResolved:
		ran += ", as a person found out; its result is not known"
	default:
		ran += "; its result is not known"
	}
	return ran + ". It is not run again."
}

func sayAgain(at time.Time) string {
	return "Result of the run at " + stamp(at) + "; not run again."
}

func by(t approvals.Ticket) string {
	if t.By == "" {
		return ""
	}
	return " (" + redact.Visible(t.By) + ")"
}

// words are the person's own.
func words(t approvals.Ticket) string {
	if t.Reason == "" {
		return ""
	}
	return ` The reason given: "` + redact.Visible(strings.TrimSpace(t.Reason)) + `"`
}
